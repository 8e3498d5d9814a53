package kubectlgang_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/objectstate/evictionrecord"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// asked is a Job of two pods with eight GPUs each, the gang llm/more.
func asked(t *testing.T) string {
	t.Helper()
	job, err := os.ReadFile(filepath.Join("testdata", "job.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(job)
}

// tryText runs kubectl gang with a manifest on its standard input.
func (s *stage) tryText(t *testing.T, manifest string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "asked.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	return s.try(t, append([]string{"whatif", "-f", file, "--scheduler-config=testdata/scheduler.yaml"}, args...)...)
}

// testWhatIf: what the API server would refuse is refused in its words, where the user may create it; and a Job uses
// the Reservation that comes with it.
func (s *stage) testWhatIf(t *testing.T) {
	const group = "\n---\n{apiVersion: scheduling.x-k8s.io/v1alpha1, kind: PodGroup, metadata: {name: more, namespace: llm}, spec: {minMember: 2}}\n"
	for change, want := range map[[2]string]string{
		{"minMember: 2", "minMember: 0"}:                         `PodGroup "more": the API server would refuse it: `,
		{"minMember: 2", "minMember: 2, minMembers: 3"}:          `unknown field "spec.minMembers"`,
		{"completions: 2", "completions: 2\n  backoffLimit: -1"}: `Job "more": the API server would refuse it: `,
	} {
		_, stderr, err := s.tryText(t, strings.Replace(asked(t)+group, change[0], change[1], 1))
		if err == nil || !strings.Contains(stderr, want) {
			t.Errorf("%s: %v, %q, want %q", change[1], err, stderr, want)
		}
	}
	const note = "note: whether the API server would take the manifests is not known: you may not create jobs.batch, podgroups.scheduling.x-k8s.io\n"
	if stdout, stderr, err := s.tryText(t, asked(t)+group, "--as=viewer"); err != nil || !strings.Contains(stdout, "2 of 2 pods would be placed") || !strings.Contains(stderr, note) {
		t.Errorf("the viewer is told %v, %q, %q", err, stdout, stderr)
	}
	// Without its Reservation the Job would take another node.
	const reservation = `
---
apiVersion: scheduling.lockstep.dev/v1alpha1
kind: Reservation
metadata: {name: for-more}
spec:
  replicas: 1
  ttl: 1h
  owners: [{podGroup: llm/more}]
  template:
    metadata: {namespace: llm}
    spec:
      nodeSelector: {kubernetes.io/hostname: gpu-5}
      schedulerName: lockstep-scheduler
      containers: [{name: worker, resources: {limits: {nvidia.com/gpu: 8}}}]
`
	one := strings.NewReplacer("parallelism: 2", "parallelism: 1", "completions: 2", "completions: 1", `"2"`, `"1"`).Replace(asked(t))
	if stdout, stderr, err := s.tryText(t, one+reservation); err != nil || !regexp.MustCompile(`more-0 +llm/more +gpu-5`).MatchString(stdout) {
		t.Errorf("with its Reservation: %v\n%s%s", err, stdout, stderr)
	}
}

// testPlanForGang: explain names the plan that is to make room for a gang.
func (s *stage) testPlanForGang(t *testing.T) {
	manifest := filepath.Join(t.TempDir(), "plan.yaml")
	if err := os.WriteFile(manifest, []byte("{apiVersion: scheduling.lockstep.dev/v1alpha1, kind: DefragmentationPlan, metadata: {name: for-pretrain}, spec: {goal: {podGroup: llm/pretrain}}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.kubectl(t, "apply", "-f", manifest)
	defer s.kubectl(t, "delete", "dfp", "for-pretrain")
	const want = "DefragmentationPlan for-pretrain is to make room for it: Pending\n"
	if out := s.run(t, "explain", "pretrain", "-n", "llm"); !strings.Contains(out, want) {
		t.Errorf("explain does not say %q:\n%s", want, out)
	}
	if out := s.run(t, "explain", "eval", "-n", "llm"); strings.Contains(out, "for-pretrain") {
		t.Errorf("explain tells another gang of the plan:\n%s", out)
	}
}

// testEvicted: a gang without a PodGroup is listed and explained after it was evicted, by the event on its Job. So is
// one whose pods wait again.
func (s *stage) testEvicted(t *testing.T) {
	manifest := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(manifest, []byte(strings.Replace(asked(t), "spec:\n", "spec:\n  suspend: true\n", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.kubectl(t, "apply", "-f", manifest)
	defer s.kubectl(t, "delete", "-f", manifest)
	job, err := s.cluster.Clientset().BatchV1().Jobs("llm").Get(t.Context(), "more", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.cluster.Clientset().CoreV1().Events("llm").Create(t.Context(), &v1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "more.1", Annotations: recorded("llm/more", "pod a/b")},
		InvolvedObject: v1.ObjectReference{APIVersion: "batch/v1", Kind: "Job", Namespace: "llm", Name: "more", UID: job.UID},
		Reason:         "Evicted", Message: `gang "llm/more" was evicted at noon for pod a/b; Job "more" makes its pods again`, Type: v1.EventTypeNormal,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.cluster.Clientset().CoreV1().Events("llm").Create(t.Context(), &v1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "pretrain.1", Annotations: recorded("llm/pretrain", "gang a/vip (priority 9)")},
		InvolvedObject: v1.ObjectReference{APIVersion: "batch/v1", Kind: "Job", Namespace: "llm", Name: "pretrain"},
		Reason:         "Evicted", Message: "nobody reads this", Type: v1.EventTypeNormal,
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	defer s.kubectl(t, "delete", "event", "-n", "llm", "pretrain.1")
	if out := s.run(t, "explain", "pretrain", "-n", "llm"); !regexp.MustCompile(`(?m)^It was evicted \d+s ago for gang a/vip \(priority 9\)$`).MatchString(out) {
		t.Errorf("it is not told that it was evicted:\n%s", out)
	}
	for _, user := range []string{"view", "viewer"} {
		if out := s.run(t, "list", "-n", "llm", "--as="+user); !regexp.MustCompile(`(?m)^more +Pending +0/0/2 +default .* Evicted `).MatchString(out) {
			t.Errorf("it is not listed to %s:\n%s", user, out)
		}
	}
	for _, name := range []string{"job/more", "more"} {
		if out := strings.Join(strings.Fields(s.run(t, "explain", name, "-n", "llm")), " "); !strings.Contains(out, `llm/more waits: gang "llm/more" was evicted at noon for pod a/b`) {
			t.Errorf("explain %s says\n%s", name, out)
		}
	}
}

// recorded returns the annotations of an event that a gang was evicted.
func recorded(gang, preemptor string) map[string]string {
	record := evictionrecord.New(time.Now(), preemptor)
	record.Gang = gang
	return map[string]string{v1alpha1.EvictedAnnotation: record.Annotation()}
}

// testUnknownResource: a queue that limits what no node has says so.
func (s *stage) testUnknownResource(t *testing.T) {
	s.kubectl(t, "patch", "queue", "vision", "--type=merge", "--patch", `{"spec":{"capability":{"nvidia.com/gpus":"4"}}}`)
	defer s.kubectl(t, "patch", "queue", "vision", "--type=merge", "--patch", `{"spec":{"capability":{"nvidia.com/gpus":null}}}`)
	await.NoError(t, "the queue says that no node has the resource", func() error {
		out, err := s.cluster.Kubectl(t.Context(), "get", "queue", "vision")
		if err == nil && !strings.Contains(out, "UnknownResource") {
			err = errors.New(out)
		}
		return err
	})
	if out := s.run(t, "queues", "-o", "wide"); !strings.Contains(out, "no node has nvidia.com/gpus: correct the name") {
		t.Errorf("kubectl gang queues does not say why:\n%s", out)
	}
}
