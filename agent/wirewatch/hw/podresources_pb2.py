"""Messages of podresources.proto. Written by `python -m tools.podresources`; do not edit."""

from google.protobuf import descriptor_pool, message_factory

# In a pool of its own: another program in this process may know messages of the same names.
DESCRIPTOR = descriptor_pool.DescriptorPool().AddSerializedFile(
    b'\n\x12podresources.proto\x12\x02v1"\x19\n\x17ListPodResourcesRequest"C\n\x18ListPodResourcesResponse\x12\'\n\rpod_resources\x18\x01 \x03(\x0b2\x10.v1.PodResources"[\n\x0cPodResources\x12\x0c\n\x04name\x18\x01 \x01(\t\x12\x11\n\tnamespace\x18\x02 \x01(\t\x12*\n\ncontainers\x18\x03 \x03(\x0b2\x16.v1.ContainerResources"k\n\x12ContainerResources\x12%\n\x07devices\x18\x02 \x03(\x0b2\x14.v1.ContainerDevices\x12.\n\x11dynamic_resources\x18\x05 \x03(\x0b2\x13.v1.DynamicResource"=\n\x10ContainerDevices\x12\x15\n\rresource_name\x18\x01 \x01(\t\x12\x12\n\ndevice_ids\x18\x02 \x03(\t"=\n\x0fDynamicResource\x12*\n\x0fclaim_resources\x18\x04 \x03(\x0b2\x11.v1.ClaimResource"p\n\rClaimResource\x12"\n\x0bcdi_devices\x18\x01 \x03(\x0b2\r.v1.CDIDevice\x12\x13\n\x0bdriver_name\x18\x02 \x01(\t\x12\x11\n\tpool_name\x18\x03 \x01(\t\x12\x13\n\x0bdevice_name\x18\x04 \x01(\t"\x19\n\tCDIDevice\x12\x0c\n\x04name\x18\x01 \x01(\t2W\n\x12PodResourcesLister\x12A\n\x04List\x12\x1b.v1.ListPodResourcesRequest\x1a\x1c.v1.ListPodResourcesResponseb\x06proto3'
)

ListPodResourcesRequest = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["ListPodResourcesRequest"])
ListPodResourcesResponse = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["ListPodResourcesResponse"])
PodResources = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["PodResources"])
ContainerResources = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["ContainerResources"])
ContainerDevices = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["ContainerDevices"])
DynamicResource = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["DynamicResource"])
ClaimResource = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["ClaimResource"])
CDIDevice = message_factory.GetMessageClass(DESCRIPTOR.message_types_by_name["CDIDevice"])
