# ruff: noqa
# mypy: ignore-errors
# For the rules beside this file: each line after `ruleid:` must be found, none after `ok:` may be.
import asyncio
import hmac
import os
import ssl

# ruleid: programs-in-known-places
import subprocess

import yaml

# ruleid: nothing-becomes-code
import pickle

# ruleid: no-shell
subprocess.run("ls", shell=True)
# ruleid: no-shell
os.system("ls")
# ok: no-shell
subprocess.run(["ls"])
# ruleid: programs-in-known-places
os.execv("/bin/ls", ["ls"])
# ruleid: programs-in-known-places
os.posix_spawn("/bin/ls", ["ls"], {})

# ruleid: yaml-is-safe
yaml.load(text, Loader=yaml.Loader)
# ruleid: yaml-is-safe
yaml.full_load(text)
# ruleid: yaml-is-safe
yaml.compose(text)
# ok: yaml-is-safe
yaml.safe_load(text)
# ok: yaml-is-safe
yaml.compose(text, yaml.SafeLoader)

# ruleid: nothing-becomes-code
eval(text)
# ruleid: nothing-becomes-code
pickle.loads(data)
# ok: nothing-becomes-code
json.loads(data)

# ruleid: certificates-are-verified
client.get(url, verify=False)
# ruleid: certificates-are-verified
context.verify_mode = ssl.CERT_NONE
# ruleid: certificates-are-verified
context.check_hostname = False
# ok: certificates-are-verified
context.verify_mode = ssl.CERT_REQUIRED

# ruleid: no-old-tls
context.minimum_version = ssl.TLSVersion.TLSv1_1
# ok: no-old-tls
context.minimum_version = ssl.TLSVersion.TLSv1_2

# ruleid: secrets-are-compared-in-constant-time
if digest == known:
    pass
# ruleid: secrets-are-compared-in-constant-time
if known == self.password:
    pass
# ruleid: secrets-are-compared-in-constant-time
if digest in tokens:
    pass
# ok: secrets-are-compared-in-constant-time
if hmac.compare_digest(digest, known):
    pass

# ruleid: nvml-changes-nothing
pynvml.nvmlDeviceSetGpuLockedClocks(handle, 1, 2)
# ruleid: nvml-changes-nothing
pynvml.nvmlDeviceResetNvLinkErrorCounters(handle, 0)
# ok: nvml-changes-nothing
pynvml.nvmlEventSetWait_v2(events, 0)

# ruleid: loopback-unless-told
listen("0.0.0.0", 9410)
# ok: loopback-unless-told
listen("127.0.0.1", 9410)
