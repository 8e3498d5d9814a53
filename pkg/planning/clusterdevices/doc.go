// Package clusterdevices counts the devices that ResourceSlices offer on each node: as resources, beside what the
// node's status has. It says which slices count, and which devices a DeviceClass selects. It allocates nothing, and
// needs no scheduler.
//
// It counts what queues can share, whatever is allocated: of partitions that exclude each other, as many as can be
// allocated at once. Package devicesimulation lists the devices of one class, each of which may be free, to bound what
// a search may still find; there partitions that exclude each other all count.
package clusterdevices
