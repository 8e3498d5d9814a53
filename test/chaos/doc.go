// Command chaos runs gangs of every kind on a real control plane, breaks what schedules them in every way that
// happens, and checks from outside what has to hold whatever happens.
//
// It is put together from a plan (package workload), code that carries it out (driver.go for users, inject.go for
// faults), observers (watch.go, observer.go, health.go) and a judge that knows nothing of the scheduler (package
// invariant). Faults hit only processes that the run has started itself, by their ids.
package main
