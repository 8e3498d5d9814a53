// Package lease keeps a scheduler that no longer leads from writing.
//
// Leader election decides which process leads, and nothing more: a leader that slept,
// because its process was stopped or its machine suspended, wakes up in the belief that
// it leads, and goes on to bind and to evict, beside the next leader, until it tries to
// renew its lease. Here every write of the scheduler's clients asks first whether the
// lease is surely still held, by a clock that counts the time in which the machine was
// suspended, once when the request is made and once more when its bytes leave the
// process.
//
// What must stay true: a write is sent only while the lease is held, the API server is
// told to drop it when the lease ends, and the lease is given back only once what was
// sent is answered. So the next holder of the lease sees all of it, and no write comes
// later.
//
// It does not elect, and does not guard reads, events, and leader election itself.
package lease
