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
		"llm/pretrain waits: no rack has room for 3; best rack r1 fits 2\nDOMAIN    FITS   SHORT\nrack r1   2/3    8 nvidia.com/gpu\n",
		"\nTo see whether more nodes would do, try --nodes +1:gpu-2\n",
	}},
	"pretrain -n llm -v": {want: []string{
		"State: Pending, waiting for room; 0 of 3 members have a node, 0 have one nominated; minimum 3\n",
		"\nAutoscalers add no nodes, since each pod fits on a node that is free",
		"\nQueue research: deserves ", " nvidia.com/gpu; has 14 nvidia.com/gpu; asks for ",
		"Place in queue research: 1 of 1\n",
		"Now: 0 of 3 placed\n",
		"Predicted with the scheduler's configuration of testdata/scheduler.yaml\n",
	}},
	"llm/pretrain --nodes +1:gpu-2": {want: []string{"With 1 more node like gpu-2 (in zone=z0, rack=r1) the scheduler would place 3 pods in rack r1\n"}},
	"eval -n llm":                   {want: []string{"llm/eval runs: 2 of 2 members have a node, and it needs 2\n"}},
	// As kubectl names objects.
	"job/pretrain -n llm":  {want: []string{"llm/pretrain waits: no rack has room for 3"}},
	"podgroup/eval -n llm": {want: []string{"llm/eval runs: "}},
	"job/train -n team-a":  {want: []string{"team-a/job.train runs: "}},
	"pod/late-0 -n team-a": {want: []string{"team-a/late waits: "}},
	"pod/lat-0 -n team-a":  {true, []string{`error: there is no pod team-a/lat-0: did you mean "late-0"?`}},
	"job/nothing -n llm":   {true, []string{"error: there is no Job llm/nothing"}},
	"pretrian -n llm":      {true, []string{`error: there is no gang "llm/pretrian": did you mean "pretrain"?`}},
	"-n team-a":            {want: []string{"team-a/late waits: "}}, // the only one that does
	"-n llm":               {want: []string{"note: 4 gangs of namespace llm wait: name one of them\n", "\npretrain   waiting for room   3     Unschedulable\n"}},
	"-n kube-system":       {want: []string{"note: there is no gang in namespace kube-system: "}},
	"-A":                   {want: []string{" gangs wait: name one of them\n", "\nllm         pretrain   waiting for room   3     Unschedulable\n", "\nteam-a      late       gathering "}},
	"late -A":              {true, []string{"error: checking the flags: -A goes without a name; NAMESPACE/NAME is a gang of any namespace"}},
	"llm/ -n llm":          {true, []string{`error: checking the name: "llm/" is none of NAME, NAMESPACE/NAME, job/NAME, pod/NAME, podgroup/NAME`}},
	"late -n team-a": {want: []string{
		"team-a/late waits: 1 of its minimum of 2 members are there\n",
		"See whether the others are made in namespace team-a, with spec.schedulingGroup.podGroupName: late\n  and spec.schedulerName: lockstep-scheduler\n",
	}},
	"empty -n llm": {want: []string{
		"llm/empty waits: 0 of its minimum of 3 members are there\n",
		"See whether its pods are made in namespace llm, with the label scheduling.x-k8s.io/pod-group: empty",
	}},
	"tonight -n llm -v": {want: []string{
		"llm/tonight waits: 1 of its minimum of 2 members are there\n",
		"Reservation tonight: Available, for 1 members; 2 of 2 placements are held, and 0 pods use them, on",
	}},
	"stray -n llm":   {want: []string{"llm/stray waits: its 1 pod names the scheduler another-scheduler, which is no profile of", "write schedulerName: lockstep-scheduler\n"}},
	"nothing -n llm": {true, []string{`error: there is no gang "llm/nothing": no pod is in it`}},
	// It may list pods of the namespace, and nothing else.
	"eval -n llm --as=poor -v":  {want: []string{"llm/eval: 2 of 2 members have a node; its minimum is not known\n", "Note: its PodGroup is not known: reading"}},
	"pretrain -n llm --as=poor": {want: []string{"llm/pretrain waits: "}},
	// It may list pods and PodGroups of the namespace, and nothing else.
	"pretrain -n llm --as=member -v": {want: []string{
		`llm/pretrain waits: gang "llm/pretrain" does not fit in any rack: `,
		"State: Pending, waiting for room; 0 of 3 members have a node, 0 have one nominated; minimum 3\n",
		"Note: what the scheduler would decide now is not known: that takes reading the whole cluster;", "lockstep-viewer\n",
		"Note: what its namespace says of the queue is not known: reading /api/v1/namespaces/llm: 403",
	}},
	"empty -n llm --as=member":             {want: []string{"llm/empty waits: 0 of its minimum of 3 members are there\n", "Note: what the scheduler would decide now is not known: "}},
	"nothing -n llm --as=member":           {true, []string{`error: there is no gang "llm/nothing"`, "and the scheduler could not be asked: "}},
	"pretrain -n llm --as=nobody":          {true, []string{"error: reading /api/v1/namespaces/llm/pods: 403 Forbidden; and the scheduler could not be asked: "}},
	"late -n team-a --nodes +1:nowhere":    {true, []string{`error: checking --nodes: no node is in pool "nowhere"`}},
	"late -n team-a --nodes nonsense":      {true, []string{`error: checking --nodes: "nonsense" is not +COUNT:POOL`}},
	"late -n team-a --scheduler-config=no": {want: []string{"team-a/late waits: 1 of its minimum of 2", "Note: what the scheduler would decide now is not known: reading --scheduler-config: open no: "}},
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
	for _, args := range []string{"explain pretrain -n llm --nodes +1:gpu-2", "explain tonight -n llm"} {
		s.runAsShown(t, args, "--scheduler-config=testdata/scheduler.yaml")
	}
	config, err := os.ReadFile("testdata/scheduler.yaml")
	if err != nil {
		t.Fatal(err)
	}
	withoutQueues := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(withoutQueues, bytes.ReplaceAll(config, []byte(", {name: FairShare}"), nil), 0o600); err != nil {
		t.Fatal(err)
	}
	asked := maps.Clone(explanations)
	asked["pretrain -n llm -v --scheduler-config="+withoutQueues] = explanation{want: []string{"Place in the queue: 1 of 1\n"}}
	withLease := filepath.Join(t.TempDir(), "with-lease.yaml")
	if err := os.WriteFile(withLease, bytes.ReplaceAll(config, []byte("{leaderElect: false}"), []byte("{leaderElect: true, resourceName: nobody}")), 0o600); err != nil {
		t.Fatal(err)
	}
	asked["pretrain -n llm --scheduler-config="+withLease] = explanation{want: []string{"llm/pretrain waits: no scheduler leads, since there is no lease kube-system/nobody; once one does:\n  no rack has room for 3"}}
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
	type standing struct{ Phase, State, Verdict string }
	if got := items[standing](s, t, "GangExplanation", "json", "explain", "pretrain", "-n", "llm", "--scheduler-config=testdata/scheduler.yaml"); len(got) != 1 || got[0] != (standing{"Pending", "waiting for room", "llm/pretrain waits: no rack has room for 3; best rack r1 fits 2"}) {
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
