package e2e

import (
	"flag"
	"path/filepath"
	"testing"
)

var kubelets = flag.Bool("kubelets", false, "run the scenarios on nodes with kubelets, which refuse pods that do not fit")

// kubeletsSlower is how many times as long everything may take there: a kubelet needs a second or two to end a pod.
const kubeletsSlower = 2

// onKubelets are the scenarios that make test-kubelets runs on kubelets: some of each part in which pods share nodes.
// Others cannot run there: nodes are deleted in them, or have annotations, devices or parts of a CPU; a step writes the
// phase of pods (finish), which kubelets write again; or pods complete whose containers a kubelet starts again.
var onKubelets = []string{
	"defragmentation/a-member-of-a-running-gang-is-moved",
	"defragmentation/moves-that-share-a-budget-go-one-by-one",
	"defragmentation/one-plan-makes-room-for-a-gang",
	"gangs/a-minimum-by-role-needs-enough-of-each-role",
	"gangs/a-pod-made-again-is-one-member",
	"gangs/every-way-to-join-makes-the-same-gang",
	"gangs/gangs-start-whole-or-not-at-all",
	"gangs/groups-across-namespaces-start-together",
	"gangs/members-beyond-the-minimum-wait-for-no-other",
	"gangs/the-match-policy-says-what-a-replacement-needs",
	"gangs/two-profiles-give-nothing-away-twice",
	"integrations/the-guide-runs-as-written",
	"integrations/the-pods-of-a-job-are-a-gang",
	"preemption/budgets-and-the-policy-never-are-respected",
	"preemption/elastic-gangs-shrink-and-survive",
	"preemption/gangs-of-a-group-end-together",
	"preemption/no-pod-is-evicted-in-vain",
	"preemption/one-pod-costs-one-pod-of-an-elastic-gang",
	"preemption/the-gang-that-costs-less-goes",
	"queues/a-full-queue-makes-way-inside-itself",
	"queues/a-raised-ceiling-starts-what-waits",
	"queues/ceilings-hold-and-closed-queues-admit-nothing",
	"reclaim/a-guarantee-is-lent-and-taken-back",
	"reclaim/siblings-take-back-from-each-other-first",
	"reclaim/three-queues-end-with-what-they-deserve",
	"reservations/a-rack-is-held-for-tonights-gang",
	"reservations/a-reservation-holds-its-place-for-its-owner",
	"reservations/a-reservation-makes-way-for-an-important-gang",
	"reservations/what-becomes-free-is-promised-to-a-reservation",
	"restarts-and-failures/gangs-come-first-after-a-restart",
	"restarts-and-failures/the-api-server-is-killed-in-a-release",
	"restarts-and-failures/the-leader-hands-over-in-a-release",
	"restarts-and-failures/the-scheduler-is-killed-between-evictions",
	"restarts-and-failures/the-scheduler-is-killed-in-a-release",
	"topology/replacements-stay-in-the-rack-of-their-gang",
	"topology/the-rack-with-the-least-harm-is-cleared",
	"topology/the-tightest-rack-that-fits-is-taken",
	"waiting/a-gang-is-passed-only-so-often",
}

// TestKubelets runs them.
func TestKubelets(t *testing.T) {
	if !*kubelets {
		t.Skip("it needs -kubelets")
	}
	for _, name := range onKubelets {
		runScenario(t, runner, filepath.Join("scenarios", filepath.FromSlash(name)+".yaml"))
	}
}
