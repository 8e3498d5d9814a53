package kubectlgang_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// explanation is the output of kubectl gang explain, and whether it fails.
type explanation struct {
	fails bool
	want  []string
}

// explanations are by the arguments of the command.
var explanations = map[string]explanation{
	"pretrain -n llm": {want: []string{
		"Gang llm/pretrain: Pending, waiting for room; 0 of 3 members have a node; it starts with 3\n",
		"\nQueue research: deserves ", " nvidia.com/gpu; has 14 nvidia.com/gpu; asks for ",
		"Among those of queue research that are complete and would still wait it is 1st of 1\n",
		"Reservations: there is none that it may use\n",
		"Now the scheduler would place none\n",
		"  Places were looked for, for llm/pretrain: 3 members in one rack:\n    rack r1: 2 of 3 members fit\n",
	}},
	"eval -n llm": {want: []string{"Gang llm/eval: Running, bound; 2 of 2 members have a node; it runs, and needs 2\n"}},
	"late -n team-a": {want: []string{
		"Gang team-a/late: Pending, gathering; 0 of 1 members have a node; it starts with 2\n",
		"Members: 1 of its minimum of 2 are there; see whether the others are made in namespace team-a, with spec.schedulingGroup.podGroupName: late and spec.schedulerName: lockstep-scheduler\n",
	}},
	"empty -n llm": {want: []string{
		"Gang llm/empty: Pending, gathering; it has no pods; it starts with 3\n",
		"Members: 0 of its minimum of 3 are there; see whether its pods are made in namespace llm, with the label scheduling.x-k8s.io/pod-group: empty and spec.schedulerName: lockstep-scheduler\n",
	}},
	"tonight -n llm": {want: []string{
		"Gang llm/tonight: Pending, gathering; 0 of 1 members have a node; it starts with 2\n",
		"Reservation tonight: Available, for 1 members; 2 of 2 placements are held, and 0 pods use them, on gpu-6\n",
	}},
	"stray -n llm":   {true, []string{`error: there is no gang "llm/stray" that the scheduler schedules: pods of it name a scheduler that is no profile of the configuration: another-scheduler (1); set spec.schedulerName to lockstep-scheduler`}},
	"nothing -n llm": {true, []string{`error: there is no gang "llm/nothing": no pod is in it`}},
	// It may list pods of the namespace, and nothing else.
	"eval -n llm --as=poor":     {want: []string{"Gang llm/eval: 2 of 2 members have a node; its minimum is not known\n", "Note: its PodGroup is not known: reading "}},
	"pretrain -n llm --as=poor": {want: []string{"Gang llm/pretrain: Pending, waiting for room; 0 of 3 members have a node; it starts with 3\n"}},
	// It may list pods and PodGroups of the namespace, and nothing else.
	"pretrain -n llm --as=member": {want: []string{
		"Gang llm/pretrain: Pending, waiting for room; 0 of 3 members have a node; it starts with 3\n",
		`pods, Unschedulable: gang "llm/pretrain" does not fit in any rack: `,
		"What the scheduler would decide now is not known: ", ": 403 Forbidden\n",
		"Note: what its namespace says of the queue is not known: reading /api/v1/namespaces/llm: 403 Forbidden\n",
	}},
	"empty -n llm --as=member":             {want: []string{"Gang llm/empty: Pending, gathering; it has no pods; it starts with 3\n", "What the scheduler would decide now is not known: "}},
	"nothing -n llm --as=member":           {true, []string{`error: there is no gang "llm/nothing"`, "and the scheduler could not be asked: "}},
	"pretrain -n llm --as=nobody":          {true, []string{"error: reading /api/v1/namespaces/llm/pods: 403 Forbidden; and the scheduler could not be asked: "}},
	"late -n team-a --nodes +1:nowhere":    {true, []string{`error: checking --nodes: no node is in pool "nowhere"`}},
	"late -n team-a --nodes nonsense":      {true, []string{`error: checking --nodes: "nonsense" is not +COUNT:POOL`}},
	"late -n team-a --scheduler-config=no": {want: []string{"Gang team-a/late: Pending, gathering;", "What the scheduler would decide now is not known: reading --scheduler-config: open no: "}},
}

// testExplain: a gang is explained with its phase, also where it has no pods, and where the user may not read what the
// scheduler reads.
func (s *stage) testExplain(t *testing.T) {
	const file = "testdata/incomplete.yaml"
	for _, args := range []string{"apply -f " + file, "create role poor -n llm --verb=list --resource=pods", "create rolebinding poor -n llm --role=poor --user=poor"} {
		if _, err := s.cluster.Kubectl(t.Context(), strings.Fields(args)...); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		if _, err := s.cluster.Kubectl(t.Context(), "delete", "-f", file); err != nil {
			t.Error(err)
		}
	}()
	config, err := os.ReadFile("testdata/scheduler.yaml")
	if err != nil {
		t.Fatal(err)
	}
	withoutQueues := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(withoutQueues, bytes.ReplaceAll(config, []byte(", {name: FairShare}"), nil), 0o600); err != nil {
		t.Fatal(err)
	}
	asked := maps.Clone(explanations)
	asked["pretrain -n llm --scheduler-config="+withoutQueues] = explanation{want: []string{"Among the gangs that are complete and would still wait it is 1st of 1\n"}}
	for args, c := range asked {
		stdout, stderr, err := s.try(t, append([]string{"explain", "--scheduler-config=testdata/scheduler.yaml"}, strings.Fields(args)...)...)
		if (err != nil) != c.fails {
			t.Errorf("kubectl gang explain %s: %v", args, err)
		}
		for _, want := range c.want {
			if !strings.Contains(stdout+stderr, want) {
				t.Errorf("kubectl gang explain %s does not say %q:\n%s%s", args, want, stdout, stderr)
			}
		}
	}
	s.testExplainDump(t)
	type standing struct{ Phase, Stands string }
	if got := items[standing](s, t, "GangExplanation", "json", "explain", "pretrain", "-n", "llm"); len(got) != 1 || got[0] != (standing{"Pending", "waiting for room"}) {
		t.Errorf("as JSON it says %+v", got)
	}
}

// testExplainDump: a dump is explained as the cluster is, also where the scheduler cannot be asked.
func (s *stage) testExplainDump(t *testing.T) {
	t.Helper()
	dump := filepath.Join(t.TempDir(), "cluster.dump")
	for _, config := range []string{"testdata/scheduler.yaml", "no"} {
		await.NoError(t, "the numbers of queues stay, and both say the same", func() error {
			s.run(t, "dump", "-f", dump, "--scheduler-config=testdata/scheduler.yaml")
			args := []string{"explain", "pretrain", "-n", "llm", "--scheduler-config=" + config}
			if diff := cmp.Diff(s.run(t, args...), s.run(t, append(args, "--dump="+dump)...)); diff != "" {
				return fmt.Errorf("(-cluster +dump):\n%s", diff)
			}
			return nil
		})
	}
}
