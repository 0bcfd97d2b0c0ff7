"""Why a running job is as fast as it is: from what all collectors know of it to one sentence. Pure."""
