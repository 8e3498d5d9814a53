// Package upgrade goes from one build to another and back, as docs/upgrade.md says, while gangs run and wait. It has a
// test only, which needs the commit to come from: make test-upgrade FROM=COMMIT.
package upgrade
