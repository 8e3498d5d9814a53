// Package nodedevices counts the devices that ResourceSlices offer on each node: as resources, beside what the node's
// status has. It says which slices count, and which devices a DeviceClass selects. It allocates nothing, and needs no
// scheduler.
package nodedevices
