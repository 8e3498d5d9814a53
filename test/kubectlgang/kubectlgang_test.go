package kubectlgang_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/version"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/view"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
	"github.com/lockstep-sh/lockstep/test/helpers/transcript"
)

// TestKubectlGang looks at one cluster with every command. What docs/kubectl-gang.md shows of it is compared.
func TestKubectlGang(t *testing.T) {
	s := begin(t)
	s.shown = shownInDocs(t)
	t.Run("Nothing", s.testNothing)
	for _, file := range []string{"gangs.yaml", "reservation.yaml", "plan.yaml"} {
		s.apply(t, file)
	}
	s.awaitAll(t)
	t.Run("List", s.testList)
	t.Run("ListAsData", s.testListAsData)
	t.Run("Queues", s.testQueues)
	t.Run("Reservations", s.testReservations)
	t.Run("Topology", s.testTopology)
	t.Run("Refused", s.testRefused)
	t.Run("Explain", s.testExplain)
	t.Run("WithoutForecasts", s.testWithoutForecasts)
	t.Run("Interrupted", s.testInterrupted)
	t.Run("PodsOnly", s.testPodsOnly)
	t.Run("WatchPodsOnly", s.testWatchPodsOnly)
	t.Run("View", s.testView)
	t.Run("Viewer", s.testViewer)
	t.Run("Tenant", s.testTenant)
	t.Run("Completion", s.testCompletion)
	t.Run("Version", s.testVersion)
	t.Run("WhatIf", s.testWhatIf)
	t.Run("PlanForGang", s.testPlanForGang)
	t.Run("Evicted", s.testEvicted)
	t.Run("UnknownResource", s.testUnknownResource)
	t.Run("Watch", s.testWatch)
	t.Run("Plan", s.testPlan)
	t.Run("NotServed", s.testNotServed)
	for command := range s.shown {
		t.Errorf("docs/kubectl-gang.md shows what %q prints, and no test compares it", command)
	}
}

// shownInDocs returns what docs/kubectl-gang.md shows of commands, but for those that package whatif_test runs.
func shownInDocs(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "kubectl-gang.md"))
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{}
	for _, command := range transcript.Of(string(text)) {
		if !strings.Contains(command.Line, " whatif ") {
			shown[command.Line] = command.Output
		}
	}
	return shown
}

// runAsShown runs kubectl gang, with arguments that users need not give, and compares all that it prints with what the
// docs show: ages may differ.
func (s *stage) runAsShown(t *testing.T, args string, more ...string) {
	t.Helper()
	command := "kubectl gang " + args
	shown, ok := s.shown[command]
	if !ok {
		t.Fatalf("docs/kubectl-gang.md does not show what %q prints", command)
	}
	delete(s.shown, command)
	stdout, stderr, err := s.try(t, append(strings.Fields(args), more...)...)
	if err != nil {
		t.Fatalf("running %s: %v\n%s", command, err, stderr)
	}
	want, got := strings.Split(strings.TrimSpace(shown), "\n"), strings.Split(strings.TrimSpace(stdout+stderr), "\n")
	for _, lines := range [][]string{want, got} {
		for i := range lines {
			lines[i] = strings.TrimRight(withoutTimes(lines[i]), " ")
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-docs/kubectl-gang.md +printed):\n%s", command, diff)
	}
}

// awaitAll waits until all that has room runs and is held, and the queues count it.
func (s *stage) awaitAll(t *testing.T) {
	t.Helper()
	for of, c := range map[string]struct {
		args []string
		want []string
	}{
		"gangs":        {[]string{"list", "-A"}, []string{`eval +Running`, `job.train +Running`, `pretrain .* Unschedulable`, `late .* GangIncomplete`}},
		"nodes":        {[]string{"topology"}, []string{`64 +11 +6 +47`}},
		"Reservations": {[]string{"reservations"}, []string{`tonight +Available`}},
		"queues":       {[]string{"queues"}, []string{`vision .* nvidia.com/gpu +8/- +8 +0 +16`, `research .* 38/- +14 +24 +-`}},
	} {
		await.NoError(t, of+" are as they should be", func() error {
			out, _, err := s.try(t, c.args...)
			for _, want := range c.want {
				if !regexp.MustCompile(want).MatchString(out) {
					err = errors.Join(err, fmt.Errorf("no %q in\n%s", want, out))
				}
			}
			return err
		})
	}
}

var age, instant = regexp.MustCompile(` \d+[smh]+\d*s?( |$)`), regexp.MustCompile(`\d{4}-\d\d-\d\dT\S+Z`)

// withoutTimes returns a line with <age> and <time> for ages and times.
func withoutTimes(line string) string {
	return instant.ReplaceAllString(age.ReplaceAllString(line, " <age>$1"), "<time>")
}

// table compares a table with what is wanted of it: <age> and <time> stand for any, and spaces count as one.
func table(t *testing.T, got, want string) {
	t.Helper()
	split := func(text string) (lines []string) {
		for line := range strings.Lines(strings.TrimSpace(text)) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		return lines
	}
	lines := split(got)
	for i := range lines {
		lines[i] = withoutTimes(lines[i])
	}
	if diff := cmp.Diff(split(want), lines); diff != "" {
		t.Errorf("table (-want +got):\n%s\n%s", diff, got)
	}
}

func (s *stage) testNothing(t *testing.T) {
	for args, note := range map[string]string{
		"list -A":      "note: no gangs found\n",
		"list":         "note: no gangs found in namespace default\n",
		"reservations": "note: no Reservations found\n",
		"defrag":       "note: no DefragmentationPlans found\n",
	} {
		stdout, stderr, err := s.try(t, strings.Fields(args)...)
		if stdout != "" || stderr != note || err != nil {
			t.Errorf("kubectl gang %s prints %q and %q, %v; want nothing and %q", args, stdout, stderr, err, note)
		}
	}
	if got := items[view.Gang](s, t, "GangList", "json", "list", "-A"); got == nil || len(got) > 0 {
		t.Errorf("kubectl gang list -o json lists %v, want an empty list", got)
	}
}

func (s *stage) testList(t *testing.T) {
	s.runAsShown(t, "list -A")
	table(t, s.run(t, "list", "-n", "team-a", "-o", "wide", "--no-headers", "--level", "topology.kubernetes.io/zone"), `
job.train Running 0/2/2 default zone=z1 MinimumBound <age> 0 Strict 2 2 Owner lockstep-scheduler gang "team-a/job.train" has its minimum of 2 members bound
late Pending 0/0/2 default <none> GangIncomplete <age> 0 Strict 1 0 NativePodGroup lockstep-scheduler gang "team-a/late" has 1 of 2 members`)
	table(t, s.run(t, "list", "-A", "-l", "batch.kubernetes.io/job-name=eval", "-o", "jsonpath={.items[*].name}"), "eval")
	if out := s.run(t, "list", "-A"); strings.Contains(out, "\x1b") {
		t.Errorf("there are colours, and no terminal:\n%q", out)
	}
}

func (s *stage) testListAsData(t *testing.T) {
	asJSON := items[view.Gang](s, t, "GangList", "json", "list", "-A")
	asYAML := items[view.Gang](s, t, "GangList", "yaml", "list", "-A")
	if diff := cmp.Diff(asJSON, asYAML); diff != "" {
		t.Errorf("YAML is not JSON (-json +yaml):\n%s", diff)
	}
	want := view.Gang{
		Namespace: "llm", Name: "eval", Source: view.SourcePodGroup, Phase: "Running", Bound: 2, Minimum: 2, Members: 2, Running: 2,
		Mode: "Strict", Queue: "vision", Priority: new(int32(100)), Domain: &view.DomainName{Key: "topology.lockstep.dev/rack", Value: "r0"},
		Reason: "MinimumBound", Message: `gang "llm/eval" has its minimum of 2 members bound`, Schedulers: []string{"lockstep-scheduler"},
	}
	if diff := cmp.Diff(want, asJSON[0], cmpopts.IgnoreFields(view.Gang{}, "Created")); diff != "" {
		t.Errorf("gang (-want +got):\n%s", diff)
	}
	if message := asJSON[1].Message; !strings.HasPrefix(message, `gang "llm/pretrain" does not fit in any rack: `) {
		t.Errorf("llm/pretrain says %q", message)
	}
}

func (s *stage) testQueues(t *testing.T) {
	s.runAsShown(t, "queues")
	if out := s.run(t, "queues", "-o", "wide"); !strings.Contains(out, "nothing more is admitted: set spec.closed to false to open the queue") {
		t.Errorf("it is not told why interns is closed:\n%s", out)
	}
	got := items[view.Queue](s, t, "QueueList", "yaml", "queues")
	if len(got) != 3 || got[2].Name != "vision" || got[2].Depth != 1 || got[2].Resources[0].Capability.String() != "16" {
		t.Errorf("queues: %+v", got)
	}
}

func (s *stage) testReservations(t *testing.T) {
	s.runAsShown(t, "reservations")
	table(t, s.run(t, "reservations", "-o", "wide"), `
NAME PHASE HELD/REPLICAS USED NODES ALLOCATED EXPIRES REASON AGE OWNERS MESSAGE
tonight Available 2/2 0 gpu-6 0/6 nvidia.com/gpu <age> Available <age> gang llm/tonight, or pods with app=tonight in team-a 2 placements are held until <time>`)
	got := items[view.Reservation](s, t, "ReservationList", "json", "reservations")
	if len(got) != 1 || got[0].Held != 2 || got[0].Replicas != 2 || time.Until(got[0].Expires.Time) < 11*time.Hour {
		t.Errorf("Reservations: %+v", got)
	}
}

func (s *stage) testTopology(t *testing.T) {
	s.runAsShown(t, "topology")
	if out := s.run(t, "topology", "-o", "wide"); !strings.Contains(out, "24 (zone z1)") {
		t.Errorf("there is no largest part:\n%s", out)
	}
	if out := s.run(t, "topology", "--nodes", "--level", "topology.lockstep.dev/rack"); !regexp.MustCompile(`(?m)^    gpu-6 +8 +0 +6 +2 +\[\+{6}\.{2}\]$`).MatchString(out) {
		t.Errorf("there is no line for gpu-6:\n%s", out)
	}
	if got := items[view.Topology](s, t, "Topology", "json", "topology"); len(got) != 1 || got[0].Free != 47 || len(got[0].Domains) != 2 {
		t.Errorf("topology: %+v", got)
	}
}

// testPlan: a plan is seen before it is approved, and approved once. There is no descheduler: the test finds its moves.
func (s *stage) testPlan(t *testing.T) {
	if _, stderr, err := s.try(t, "defrag", "for-tonight", "--approve"); err == nil || !strings.Contains(stderr, `DefragmentationPlan "for-tonight" has no moves yet`) {
		t.Errorf("a plan without moves was approved: %v, %s", err, stderr)
	}
	if _, err := s.cluster.Kubectl(t.Context(), "patch", "dfp", "for-tonight", "--subresource=status", "--type=merge", "--patch-file=testdata/plan-status.json"); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, "the plan waits for approval", func() error {
		out, _, err := s.try(t, "defrag")
		if !strings.Contains(out, "AwaitingApproval") {
			err = errors.Join(err, errors.New(out))
		}
		return err
	})
	s.runAsShown(t, "defrag")
	if out := s.run(t, "defrag", "-o", "jsonpath={.items[0].mode}"); out != "Approval" {
		t.Errorf("the mode is %q, want Approval", out)
	}
	s.runAsShown(t, "defrag for-tonight")
	if _, stderr, err := s.try(t, "defrag", "for-tonight", "--approve", "--as=viewer"); err == nil || !strings.Contains(stderr, "note: the ClusterRole lockstep-plan-approver has ") {
		t.Errorf("approved by whoever may only look: %v, %s", err, stderr)
	}
	s.kubectl(t, "create", "clusterrolebinding", "approver", "--clusterrole=lockstep-plan-approver", "--user=approver")
	for _, spec := range []string{`{"mode":"Execute"}`, `{"schedulerName":"other"}`, `{"budget":{"maxMoves":100}}`} {
		out, err := s.cluster.Kubectl(t.Context(), "patch", "dfp", "for-tonight", "--as=approver", "--type=merge", "--patch", `{"spec":`+spec+`}`)
		if err == nil || !strings.Contains(err.Error()+out, "only approved can be changed") {
			t.Errorf("who may approve a plan changes %s of it: %v, %s", spec, err, out)
		}
	}
	s.runAsShown(t, "defrag for-tonight --approve", "--as=approver")
	if out, err := s.cluster.Kubectl(t.Context(), "get", "dfp", "for-tonight", "-o", "jsonpath={.spec.approved}"); err != nil || out != "true" {
		t.Errorf("spec.approved is %q: %v", out, err)
	}
	if stdout, stderr, err := s.try(t, "defrag", "for-tonight", "--approve"); err != nil || stdout != "" || !strings.Contains(stderr, "has been approved") {
		t.Errorf("approved again: %v, %q, %q", err, stdout, stderr)
	}
	if _, stderr, err := s.try(t, "defrag", "--approve"); err == nil || !strings.Contains(stderr, "name the plan") {
		t.Errorf("approved without a name: %v, %q", err, stderr)
	}
}

// testRefused: an error names the verb and the resource; the command does without what is no gang.
func (s *stage) testRefused(t *testing.T) {
	refused := regexp.MustCompile(`error: listing (pods|podgroups\S*): .* is forbidden: User "nobody" cannot list resource "(pods|podgroups)" in API group "\S*" at the cluster scope`)
	if _, stderr, err := s.try(t, "list", "-A", "--as=nobody"); err == nil || !refused.MatchString(stderr) {
		t.Errorf("%v: %q, want %s", err, stderr, refused)
	}
	s.kubectl(t, strings.Fields("create role reader -n llm --verb=list,watch --resource=pods,podgroups.scheduling.x-k8s.io,podgroups.scheduling.k8s.io")...)
	s.kubectl(t, strings.Fields("create rolebinding reader -n llm --role=reader --user=member")...)
	stdout, stderr, err := s.try(t, "list", "-n", "llm", "--as=member")
	if err != nil || !strings.Contains(stdout, "eval") || !strings.Contains(stdout, "Running") {
		t.Errorf("%v\n%s", err, stdout)
	}
	for _, note := range []string{"note: DOMAIN is not known: listing nodes: ", "note: QUEUE leaves out what namespaces name: getting namespaces: namespaces \"llm\" is forbidden: "} {
		if !strings.Contains(stderr, note) {
			t.Errorf("no %q in\n%s", note, stderr)
		}
	}
	const role = "\nnote: the ClusterRole lockstep-viewer has all that kubectl gang reads"
	for args, want := range map[string]string{
		"queues":             "error: listing queues.scheduling.lockstep.dev: ",
		"reservations":       "error: listing reservations.scheduling.lockstep.dev: ",
		"defrag":             "error: listing defragmentationplans.scheduling.lockstep.dev: ",
		"defrag for-tonight": "error: getting defragmentationplans.scheduling.lockstep.dev: ",
		"topology":           "error: listing ", // nodes or pods
		"list":               "error: listing pods: ",
		"explain late":       "error: reading /api/v1/namespaces/default/pods: 403 Forbidden",
		"dump -f /dev/null":  "error: reading /apis/scheduling.k8s.io/v1/priorityclasses: 403 Forbidden",
	} {
		if _, stderr, err := s.try(t, append(strings.Fields(args), "--as=nobody")...); err == nil || !strings.Contains(stderr, want) || !strings.Contains(stderr, role) {
			t.Errorf("kubectl gang %s: %v, %q, want %q and %q", args, err, stderr, want, role)
		}
	}
	if _, stderr, err := s.try(t, "list", "-o", "xml"); err == nil || !strings.Contains(stderr, `checking --output: "xml" is none of table, wide, json, yaml`) {
		t.Errorf("%v: %q", err, stderr)
	}
}

func (s *stage) testCompletion(t *testing.T) {
	for args, want := range map[string]string{
		"__complete defrag f":         "for-tonight",
		"__complete list -n te":       "team-a",
		"__complete list -o y":        "yaml",
		"__complete re":               "reservations",
		"completion bash":             "__start_kubectl-gang",
		"completion zsh":              "#compdef kubectl-gang",
		"list --help":                 "kubectl gang list -A -w",
		"__complete list --context k": "kwok-",
	} {
		if out := s.run(t, strings.Fields(args)...); !strings.Contains(out, want) {
			t.Errorf("kubectl gang %s: no %q in\n%s", args, want, out)
		}
	}
}

// testVersion: it is a line for scripts, and data like that of every other command.
func (s *stage) testVersion(t *testing.T) {
	line := strings.TrimSpace(s.run(t, "version"))
	got := items[version.Info](s, t, "Version", "json", "version")
	if len(got) != 1 || got[0].GitVersion != line || !strings.HasPrefix(line, "v") || got[0].GoVersion == "" {
		t.Errorf("the version is %q, and as data %+v", line, got)
	}
}

// testWatch: what changes is printed again, and nothing else.
func (s *stage) testWatch(t *testing.T) {
	lines, _, _ := s.start(t, "list", "-A", "-w")
	for range 5 { // the header, and all gangs
		await.Value(t, "a line of the list", lines)
	}
	s.kubectl(t, "delete", "job", "pretrain", "-n", "llm")
	for line := ""; !strings.Contains(line, "Deleted"); {
		if line = await.Value(t, "the gang that is deleted", lines); !strings.Contains(line, "pretrain") {
			t.Errorf("another line: %q", line)
		}
	}
}

func (s *stage) testNotServed(t *testing.T) {
	for _, name := range []string{"reservations.scheduling.lockstep.dev", "podgroups.scheduling.x-k8s.io"} {
		if _, err := s.cluster.Kubectl(t.Context(), "delete", "crd", name); err != nil {
			t.Fatal(err)
		}
	}
	for args, want := range map[string][2]string{
		"reservations":             {"", "note: the cluster does not serve reservations.scheduling.lockstep.dev\n"},
		"reservations --as=nobody": {"", "note: the cluster does not serve reservations.scheduling.lockstep.dev\n"},
		"topology":                 {"nvidia.com/gpu on all nodes", "note: the cluster does not serve reservations.scheduling.lockstep.dev\n"},
		"list -A":                  {"late", "note: the cluster does not serve podgroups.scheduling.x-k8s.io\n"},
	} {
		stdout, stderr, err := s.try(t, strings.Fields(args)...)
		if err != nil || !strings.Contains(stdout, want[0]) || !strings.Contains(stderr, want[1]) {
			t.Errorf("kubectl gang %s: %v, %q, %q; want %q", args, err, stdout, stderr, want)
		}
	}
}
