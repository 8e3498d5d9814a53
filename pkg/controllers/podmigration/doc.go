// Package podmigration is the controller of PodMigrations: it reserves the target, evicts the pod through the Eviction
// API once the target is held, and follows the successor onto it. Package migration in pkg/rules/defrag decides what
// comes next.
//
// It works on few objects, and each of its decisions is about an eviction: so it reads what it decides by from the API
// server itself, not from a cache. A status is written before what it announces is done.
package podmigration
