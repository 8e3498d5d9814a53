// Package monitoring holds the dashboard and the alerts of manifests/monitoring to what the binaries export: a real
// Prometheus scrapes a scheduler, a controller and a descheduler that have something to do, and answers every query of
// both.
package monitoring
