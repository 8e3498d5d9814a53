package kubectlgang_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// testPodsOnly: a user who may list pods, and nothing else, sees what pods say, and what is missing.
func (s *stage) testPodsOnly(t *testing.T) {
	for _, namespace := range []string{"llm", "team-a"} {
		s.kubectl(t, "create", "role", "pods", "-n", namespace, "--verb=list,watch", "--resource=pods")
		s.kubectl(t, "create", "rolebinding", "pods", "-n", namespace, "--role=pods", "--user=podreader")
	}
	for namespace, want := range map[string]string{
		"llm": `
NAME PHASE HELD/BOUND/MIN QUEUE DOMAIN REASON AGE
eval <unknown> 0/2/? vision <none> <unknown> <age>
pretrain Pending 0/0/3 default <none> Unschedulable <age>`,
		"team-a": `
NAME PHASE HELD/BOUND/MIN QUEUE DOMAIN REASON AGE
job.train <unknown> 0/2/? default <none> <unknown> <age>
late <unknown> 0/0/? default <none> <unknown> <age>
single <unknown> 0/1/? default <none> <unknown> <age>`,
	} {
		stdout, stderr, err := s.try(t, "list", "-n", namespace, "--as=podreader")
		if err != nil {
			t.Errorf("%v: %s", err, stderr)
		}
		table(t, stdout, want)
		var notes []string
		for line := range strings.Lines(stderr) {
			note, _, _ := strings.Cut(line, " is forbidden")
			notes = append(notes, strings.TrimSpace(note))
		}
		if diff := cmp.Diff([]string{
			"note: what PodGroups say of MIN, MODE, QUEUE and REASON is not known, and those without pods are left out: listing podgroups.scheduling.x-k8s.io: podgroups.scheduling.x-k8s.io",
			"note: what native PodGroups say of MIN, QUEUE and REASON is not known, nor which are no gangs, and those without pods are left out: listing podgroups.scheduling.k8s.io: podgroups.scheduling.k8s.io",
			"note: DOMAIN is not known: listing nodes: nodes",
			`note: QUEUE leaves out what namespaces name: getting namespaces: namespaces "` + namespace + `"`,
		}, notes); diff != "" {
			t.Errorf("notes (-want +got):\n%s", diff)
		}
	}
}

// testWatchPodsOnly: the same of -w, and that what may be listed and not watched stays as it is.
func (s *stage) testWatchPodsOnly(t *testing.T) {
	s.kubectl(t, "create", "role", "lists", "-n", "llm", "--verb=list", "--resource=pods,podgroups.scheduling.x-k8s.io")
	s.kubectl(t, "create", "rolebinding", "lists", "-n", "llm", "--role=lists", "--user=lister")
	lines, _, stop := s.start(t, "list", "-n", "llm", "-w", "--as=podreader", "--no-headers")
	for _, want := range []string{"eval", "pretrain"} {
		if line := await.Value(t, "a line of the list", lines); !strings.HasPrefix(line, want) {
			t.Errorf("printed %q, want %s", line, want)
		}
	}
	s.apply(t, "gated.yaml")
	if line := await.Value(t, "a gang that is new", lines); !strings.HasPrefix(line, "gated ") || !strings.Contains(line, "GangIncomplete") {
		t.Errorf("printed %q, want gated", line)
	}
	s.kubectl(t, "delete", "pod", "gated-0", "-n", "llm")
	for line := ""; !strings.Contains(line, "Deleted"); {
		line = await.Value(t, "the gang that is gone", lines)
	}
	stop()
	const refused = `error: watching pods: pods is forbidden: the user may not watch them in the namespace "llm"`
	if _, stderr, err := s.try(t, "list", "-n", "llm", "-w", "--as=lister"); err == nil || !strings.Contains(stderr, refused) {
		t.Errorf("%v, %q, want %q", err, stderr, refused)
	}
	s.kubectl(t, "create", "rolebinding", "pods-of-lister", "-n", "llm", "--role=pods", "--user=lister")
	lines, stderr, stop := s.start(t, "list", "-n", "llm", "-w", "--as=lister", "--no-headers")
	await.Value(t, "a line of the list", lines)
	await.Value(t, "a line of the list", lines)
	s.apply(t, "gated.yaml")
	await.Value(t, "a gang that is new", lines)
	stop()
	s.kubectl(t, "delete", "pod", "gated-0", "-n", "llm")
	const still = "note: what changes of these is not seen: watching podgroups.scheduling.x-k8s.io: "
	if !strings.Contains(stderr.String(), still) {
		t.Errorf("noted %q, want %q", stderr, still)
	}
}

// testView: a user who has view in a namespace may list its gangs, and edit its PodGroups with edit.
func (s *stage) testView(t *testing.T) {
	for _, role := range []string{"view", "edit", "admin"} {
		s.kubectl(t, "create", "rolebinding", role, "-n", "llm", "--clusterrole="+role, "--user="+role)
	}
	may := func(user, verb, resource string, more ...string) bool {
		out, _ := s.cluster.Kubectl(t.Context(), append([]string{"auth", "can-i", verb, resource, "-n", "llm", "--as=" + user}, more...)...) // it fails for no
		return strings.Contains(out, "yes")
	}
	await.NoError(t, "the roles are aggregated", func() error {
		if !may("view", "list", "podgroups.scheduling.x-k8s.io") || !may("admin", "delete", "podgroups.scheduling.x-k8s.io") {
			return errors.New("not yet")
		}
		return nil
	})
	stdout, stderr, err := s.try(t, "list", "-n", "llm", "--as=view")
	if err != nil || strings.Count(stderr, "note:") != 1 || !strings.HasPrefix(stderr, "note: DOMAIN is not known: ") {
		t.Errorf("%v: noted %q, want DOMAIN only", err, stderr)
	}
	table(t, stdout, `
NAME PHASE HELD/BOUND/MIN QUEUE DOMAIN REASON AGE
eval Running 0/2/2 vision <none> MinimumBound <age>
pretrain Pending 0/0/3 research <none> Unschedulable <age>`)
	for user, writes := range map[string]bool{"view": false, "edit": true, "admin": true} {
		for _, verb := range []string{"create", "patch", "delete"} {
			if may(user, verb, "podgroups.scheduling.x-k8s.io") != writes {
				t.Errorf("%s may %s PodGroups: %t, want %t", user, verb, !writes, writes)
			}
			if may(user, verb, "podmigrations.scheduling.lockstep.dev") {
				t.Errorf("%s may %s PodMigrations", user, verb)
			}
		}
		if !may(user, "list", "podmigrations.scheduling.lockstep.dev") || may(user, "update", "podgroups.scheduling.x-k8s.io", "--subresource=status") {
			t.Errorf("%s may not list PodMigrations, or may write the status of PodGroups", user)
		}
	}
}

// testTenant: who has lockstep-tenant in one namespace, and lockstep-queue-viewer, reads the gangs of that namespace
// and the queues, is told what is not shown to him, and reads nothing of other namespaces and of the cluster.
func (s *stage) testTenant(t *testing.T) {
	s.kubectl(t, "create", "serviceaccount", "tenant", "-n", "llm")
	s.kubectl(t, "create", "rolebinding", "tenant", "-n", "llm", "--clusterrole=lockstep-tenant", "--serviceaccount=llm:tenant")
	s.kubectl(t, "create", "clusterrolebinding", "tenants", "--clusterrole=lockstep-queue-viewer", "--serviceaccount=llm:tenant")
	as := "--kubeconfig=" + s.kubeconfigOf(t, "llm", "tenant")
	await.NoError(t, "the roles are bound", func() error {
		_, _, err := s.try(t, "queues", as)
		return err
	})
	stdout, stderr, err := s.try(t, "list", as)
	if err != nil {
		t.Errorf("kubectl gang list: %v", err)
	}
	table(t, stdout, `
NAME PHASE HELD/BOUND/MIN QUEUE DOMAIN REASON AGE
eval Running 0/2/2 vision <none> MinimumBound <age>
pretrain Pending 0/0/3 research <none> Unschedulable <age>`)
	if strings.Count(stderr, "note: ") != 1 || !strings.HasPrefix(stderr, "note: DOMAIN is not known: listing nodes: nodes is forbidden: ") ||
		!strings.HasSuffix(stderr, "; ask for the ClusterRole lockstep-viewer\n") {
		t.Errorf("kubectl gang list notes %q", stderr)
	}
	if out := s.run(t, "queues", as); !regexp.MustCompile(`(?m)^  vision +12.5% +1/0 `).MatchString(out) {
		t.Errorf("kubectl gang queues prints\n%s", out)
	}
	for args, wants := range map[string][]string{
		"pretrain":     {`llm/pretrain waits: gang "llm/pretrain" does not fit in any rack: `},
		"job/pretrain": {"llm/pretrain waits: "},
		"eval -v":      {"llm/eval runs: 2 of 2 members have a node, and it needs 2\n", "\nQueue vision: deserves "},
		"":             {"llm/pretrain waits: "}, // the only one that does
	} {
		out := s.run(t, append([]string{"explain", as}, strings.Fields(args)...)...)
		refused := regexp.MustCompile(`Note: what the scheduler would decide now is not known: [^:]*\bnodes,\s[^:]*\bpersistentvolumes,\s[^:]*:\s+forbidden;\s+ask\s+for\s+the\s+ClusterRole\s+lockstep-viewer\n`)
		if !refused.MatchString(out) {
			t.Errorf("kubectl gang explain %s does not say what may not be read:\n%s", args, out)
		}
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("kubectl gang explain %s does not say %q:\n%s", args, want, out)
			}
		}
	}
	for _, args := range []string{"list -A", "list -n team-a", "explain late -n team-a", "topology", "reservations", "defrag", "whatif -f testdata/job.yaml"} {
		if stdout, stderr, err := s.try(t, append(strings.Fields(args), as)...); err == nil || stdout != "" || !strings.Contains(stderr, "\nnote: the ClusterRole lockstep-viewer has ") {
			t.Errorf("kubectl gang %s: %v, %q, %q", args, err, stdout, stderr)
		}
	}
	for args, allowed := range map[string]bool{
		"get pods": true, "get events": true, "get podgroups.scheduling.x-k8s.io": true, "get podgroups.scheduling.k8s.io": true, "get queues": true,
		"get namespace llm": true, "get pods -A": false, "get pods -n team-a": false, "get events -n team-a": false,
		"get podgroups.scheduling.x-k8s.io -A": false, "get podgroups.scheduling.k8s.io -n team-a": false, "get namespaces": false, "get namespace team-a": false,
		"get nodes": false, "get persistentvolumes": false, "get persistentvolumeclaims": false, "get secrets": false, "get configmaps": false,
		"get reservations": false, "get defragmentationplans": false, "delete pod --all": false, "delete podgroups.scheduling.x-k8s.io --all": false,
		"patch queue vision --type=merge -p {}": false,
	} {
		out, err := s.cluster.Kubectl(t.Context(), append(strings.Fields(args), as)...)
		if allowed && err != nil || !allowed && (err == nil || !strings.Contains(err.Error(), "(Forbidden)")) {
			t.Errorf("kubectl %s: %v, allowed should be %t\n%s", args, err, allowed, out)
		}
	}
}

// kubeconfigOf writes a kubeconfig of a service account, and returns its path.
func (s *stage) kubeconfigOf(t *testing.T, namespace, account string) string {
	t.Helper()
	token, err := s.cluster.Kubectl(t.Context(), "create", "token", account, "-n", namespace)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(s.cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	at := config.Contexts[config.CurrentContext]
	at.Namespace = namespace
	config.AuthInfos[at.AuthInfo] = &clientcmdapi.AuthInfo{Token: strings.TrimSpace(token)}
	file := filepath.Join(t.TempDir(), "kubeconfig.yaml")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// onlyWith are rules of the role lockstep-viewer that no command needs here.
var onlyWith = map[string]string{
	"provisioningrequests.autoscaling.x-k8s.io": "a scheduler with provisioningClassName",
}

// notNeeded is what is asked for without being a right that a role has to give.
var notNeeded = map[string]string{
	"selfsubjectaccessreviews.authorization.k8s.io": "everybody may",
	"events.events.k8s.io":                          "an event that comes again is looked for in the cluster, where it never is",
}

// testViewer: with the role lockstep-viewer every command reads all that it wants to, and the role has nothing that
// none reads.
func (s *stage) testViewer(t *testing.T) {
	s.kubectl(t, "create", "clusterrolebinding", "viewer", "--clusterrole=lockstep-viewer", "--user=viewer")
	dump := filepath.Join(t.TempDir(), "cluster.dump")
	for _, c := range []struct{ args, want string }{
		{"list -A", "job.train"},
		{"list -n llm", "vision"},
		{"explain llm/pretrain --nodes +1:gpu-0", "no rack has room for 3; best rack r1 fits 2\n"},
		{"whatif -f testdata/job.yaml --preempt --nodes +1:gpu-0", "Now: 2 of 2 pods would be placed."},
		{"queues", "research"},
		{"reservations", "tonight"},
		{"topology", "rack r3"},
		{"defrag", "for-tonight"},
		{"defrag for-tonight", ""}, // it has no moves yet
		{"dump -f " + dump, "answers to"},
		{"whatif -f testdata/job.yaml --dump " + dump, "Now: 2 of 2 pods would be placed."},
	} {
		stdout, stderr, err := s.try(t, append(strings.Fields(c.args), "--as=viewer")...)
		if err != nil || !strings.Contains(stdout, c.want) {
			t.Errorf("kubectl gang %s: %v, want %q\n%s\n%s", c.args, err, c.want, stdout, stderr)
		}
		if strings.Contains(stderr, "forbidden") || strings.Contains(stderr, "built-in configuration") {
			t.Errorf("kubectl gang %s did not read all: %s", c.args, stderr)
		}
	}
	lines, _, stop := s.start(t, "list", "-A", "-w", "--as=viewer")
	await.Value(t, "the first line", lines)
	s.apply(t, "gated.yaml")
	for line := ""; !strings.Contains(line, "gated"); {
		line = await.Value(t, "the gang that is new", lines)
	}
	stop()
	s.kubectl(t, "delete", "pod", "gated-0", "-n", "llm")

	s.compareRole(t, "lockstep-viewer", s.askedAs(t, "viewer"))
}

// compareRole compares the resources of a role with those that were asked for.
func (s *stage) compareRole(t *testing.T, name string, asked map[string]bool) {
	t.Helper()
	role, err := s.cluster.Clientset().RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	needed := map[string]bool{}
	for _, rule := range role.Rules {
		for _, resource := range resourcesOf(&rule) {
			needed[resource] = true
			if !asked[resource] && onlyWith[resource] == "" {
				t.Errorf("%s grants to read %s, which no command does", name, resource)
			}
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(asked)) {
		if !needed[resource] && notNeeded[resource] == "" {
			t.Errorf("%s does not grant to read %s", name, resource)
		}
	}
}

func resourcesOf(rule *rbacv1.PolicyRule) (all []string) {
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			all = append(all, strings.TrimSuffix(resource+"."+group, "."))
		}
	}
	return all
}

// askedAs returns the resources that a user asked for. What was refused is an error.
func (s *stage) askedAs(t *testing.T, user string) map[string]bool {
	t.Helper()
	data, err := os.ReadFile(s.audit)
	if err != nil {
		t.Fatal(err)
	}
	asked := map[string]bool{}
	for line := range bytes.Lines(data) {
		var request struct {
			Verb             string
			ImpersonatedUser struct{ Username string }
			ObjectRef        struct{ APIGroup, Resource string }
			ResponseStatus   struct{ Code int }
		}
		if !bytes.HasSuffix(line, []byte("\n")) || json.Unmarshal(line, &request) != nil || request.ImpersonatedUser.Username != user || request.ObjectRef.Resource == "" {
			continue // is being written, or of another user
		}
		resource := strings.TrimSuffix(request.ObjectRef.Resource+"."+request.ObjectRef.APIGroup, ".")
		asked[resource] = true
		if request.ResponseStatus.Code == http.StatusForbidden && notNeeded[resource] == "" {
			t.Errorf("%s was refused to %s %s", user, request.Verb, resource)
		}
	}
	if len(asked) == 0 {
		t.Errorf("%s has asked for nothing", user)
	}
	return asked
}
