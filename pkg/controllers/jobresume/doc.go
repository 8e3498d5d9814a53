// Package jobresume resumes Jobs that the scheduler has suspended to evict their pods, once these have ended. The rules
// are in package jobsuspension.
package jobresume
