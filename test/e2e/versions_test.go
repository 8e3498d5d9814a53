package e2e

import (
	"flag"
	"path/filepath"
	"slices"
	"testing"
)

// onEachVersion are the scenarios that make test-versions runs on each version of Kubernetes: some of each part of the
// program, and all that differs between versions, such as devices by claims.
var onEachVersion = []string{
	"autoscaling/a-provisioning-request-asks-for-a-rack",
	"autoscaling/only-pods-that-nodes-would-help-ask-for-them",
	"defragmentation/a-dry-run-moves-nothing",
	"defragmentation/a-member-of-a-running-gang-is-moved",
	"defragmentation/moves-that-share-a-budget-go-one-by-one",
	"defragmentation/one-plan-makes-room-for-a-gang",
	"devices-and-volumes/pods-are-evicted-only-where-devices-become-free",
	"devices-and-volumes/devices-of-victims-are-held-for-their-preemptor",
	"devices-and-volumes/members-claim-a-device-each",
	"devices-and-volumes/members-get-a-local-volume-each",
	"devices-and-volumes/members-share-one-claim",
	"devices-and-volumes/queues-count-claimed-devices",
	"gangs/every-way-to-join-makes-the-same-gang",
	"gangs/gangs-start-whole-or-not-at-all",
	"gangs/groups-across-namespaces-start-together",
	"gangs/the-match-policy-says-what-a-replacement-needs",
	"integrations/a-job-run-again-is-a-gang-again",
	"integrations/gangs-start-without-the-podgroup-crd",
	"integrations/mistakes-in-keys-do-not-pass",
	"integrations/pods-start-alone-where-native-podgroups-are-not-served",
	"integrations/the-guide-runs-as-written",
	"integrations/the-pods-of-a-job-are-a-gang",
	"preemption/an-evicted-job-is-back-when-there-is-room",
	"preemption/budgets-and-the-policy-never-are-respected",
	"preemption/many-gangs-without-surplus-go-whole",
	"preemption/pods-that-the-job-controller-does-not-delete-are-deleted",
	"preemption/slow-victims-are-evicted-once",
	"queues/ceilings-hold-and-closed-queues-admit-nothing",
	"queues/gangs-made-anew-keep-their-turns",
	"reclaim/siblings-take-back-from-each-other-first",
	"reclaim/three-queues-end-with-what-they-deserve",
	"reservations/a-rack-is-held-for-tonights-gang",
	"reservations/a-reservation-holds-its-place-for-its-owner",
	"reservations/the-overhead-of-a-runtime-class-is-held-too",
	"restarts-and-failures/gangs-come-first-after-a-restart",
	"restarts-and-failures/the-api-server-is-killed-in-a-release",
	"restarts-and-failures/the-leader-hands-over-in-a-release",
	"topology/a-preferred-rack-is-taken-where-one-fits",
	"topology/the-tightest-rack-that-fits-is-taken",
	"waiting/pods-and-gangs-start-by-rank",
}

// versionsPart is the part of them that runs.
var versionsPart = part{k: 1, of: 1}

func init() {
	flag.Var(&versionsPart, "versions-part", "run this `part` of the scenarios for versions, such as 1/3")
}

// TestVersions runs them on the version that -kubernetes names, with the roles and the binaries that users have.
func TestVersions(t *testing.T) {
	if *kubernetes == "" {
		t.Skip("it needs -kubernetes, a version")
	}
	for i, name := range onEachVersion {
		if versionsPart.has(i) {
			runScenario(t, runner, filepath.Join("scenarios", filepath.FromSlash(name)+".yaml"))
		}
	}
}

// TestListsNameScenarios: each scenario of the lists is there.
func TestListsNameScenarios(t *testing.T) {
	there := map[string]bool{}
	for _, file := range scenarioFiles(t) {
		there[testName(file)] = true
	}
	for _, name := range slices.Concat(onEachVersion, onKubelets) {
		if !there[name] {
			t.Errorf("there is no scenario %s", name)
		}
	}
}
