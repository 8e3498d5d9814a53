package whatifcommand_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/lockstep-sh/lockstep/pkg/status/decisions"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

// reader may see what the scheduler shows of itself.
const reader = `
{apiVersion: v1, kind: ServiceAccount, metadata: {name: reader, namespace: default}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: configz-reader}, rules: [{nonResourceURLs: [/configz], verbs: [get]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: configz-reader}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: configz-reader}, subjects: [{kind: ServiceAccount, name: reader, namespace: default}]}
`

// TestDecisions: what was decided about a gang is remembered: where it was tried, and which pods would have to go. The
// scheduler shows it to users who may see its configuration, and explain reports what it decides now.
func TestDecisions(t *testing.T) {
	c := start(t)
	c.apply(classes)
	c.apply(reader)
	c.apply(job("low", 8, 8))
	await.NoError(t, "others run", func() error { return c.all(func(pod *v1.Pod) bool { return pod.Spec.NodeName != "" }) })
	c.apply(job("train", 5, 8, rack, "class: high"))
	for _, want := range []struct{ kind, result, domain, outcome string }{
		{decisions.Placement, decisions.Unplaced, "", ""},
		{decisions.Preemption, decisions.NoVictims, "rack r0", "short even if every eligible pod were evicted"},
	} {
		await.NoError(t, "what was decided is shown", func() error { return contains(c.decided(), want.kind, want.result, want.domain, want.outcome) })
	}
	var list struct {
		Items []struct {
			Cases []struct{ Placement, Search *decisions.Decision }
		}
	}
	out := c.run("explain", "train", "-o", "json")
	if err := json.Unmarshal(out, &list); err != nil {
		t.Fatal(err)
	}
	if err := contains([]decisions.Decision{*list.Items[0].Cases[0].Search}, decisions.Preemption, decisions.NoVictims, "rack r1", "short even if every eligible pod were evicted"); err != nil {
		t.Errorf("explain: %v", err)
	}
	if fits := list.Items[0].Cases[0].Placement.Fits; len(fits) == 0 || fits[0].Fits != 0 || fits[0].Min != 5 {
		t.Errorf("explain: %+v", fits)
	}
	if out := string(c.run("explain", "train", "-v")); !strings.Contains(out, "  Victims were looked for, to free 40 nvidia.com/gpu\n    rack r0, to preempt: ") {
		t.Errorf("explain does not tell where victims were looked for:\n%s", out)
	}
	c.apply(job("small", 2, 8, rack, "class: high"))
	await.NoError(t, "who goes is shown", func() error {
		all := c.decided()
		at := slices.IndexFunc(all, func(d decisions.Decision) bool { return d.Result == decisions.Evict })
		if at < 0 {
			return fmt.Errorf("nobody is to be evicted in %+v", all)
		}
		if d := all[at]; !slices.Equal(d.Gangs, []string{"default/small"}) || len(d.Bundles) != 1 || d.Bundles[0].Kind != "Whole" || d.Bundles[0].Pods != 8 || d.Bundles[0].ROI <= 0 {
			return fmt.Errorf("it says %+v", d)
		}
		return contains(all, decisions.Placement, decisions.Placed, "", "")
	})
}

// contains returns an error where nothing of a kind came out so; with a domain it has to have been tried so there.
func contains(all []decisions.Decision, kind, result, domain, outcome string) error {
	if slices.ContainsFunc(all, func(d decisions.Decision) bool {
		return d.Kind == kind && d.Result == result && (domain == "" || slices.ContainsFunc(d.Domains, func(at decisions.Domain) bool { return at.Name == domain && at.Outcome == outcome }))
	}) {
		return nil
	}
	return fmt.Errorf("no %s with %s and %s: %s in %+v", kind, result, domain, outcome, all)
}

// decided returns what the scheduler shows to the reader; it fails if it shows it to users who may not read it.
func (c *cluster) decided() []decisions.Decision {
	c.Helper()
	if code, text := c.configz(""); code != http.StatusForbidden {
		c.Fatalf("whoever says nothing of himself reads: %d: %s", code, text)
	}
	request, err := c.Clientset().CoreV1().ServiceAccounts("default").CreateToken(c.Context(), "reader", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	code, text := c.configz(request.Status.Token)
	var shown map[string]json.RawMessage
	var list struct{ Items []decisions.Decision }
	if err := json.Unmarshal(text, &shown); code != http.StatusOK || err != nil {
		c.Fatalf("reading what is shown: %d: %v: %s", code, err, text)
	}
	if err := json.Unmarshal(shown["decisions.lockstep.dev"], &list); err != nil {
		c.Fatalf("reading decisions: %v: %s", err, text)
	}
	return list.Items
}

func (c *cluster) configz(token string) (code int, text []byte) {
	c.Helper()
	client, err := rest.HTTPClientFor(&rest.Config{BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}})
	if err != nil {
		c.Fatal(err)
	}
	response, err := client.Get(fmt.Sprintf("https://127.0.0.1:%d/configz", c.port))
	if err != nil {
		c.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }() // all of it has been read
	if text, err = io.ReadAll(response.Body); err != nil {
		c.Fatal(err)
	}
	return response.StatusCode, text
}
