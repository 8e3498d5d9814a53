// Package migration is the controller of PodMigrations: it reserves the target, evicts the pod through the Eviction
// API once that is held, and follows the successor onto it. What follows when, the pure package of that name says.
//
// It works on few objects, and each of its decisions is about an eviction: so it reads what it decides by from the API
// server itself, not out of a cache. A status is written before what it says is done.
package migration
