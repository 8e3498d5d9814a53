package scenario

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/jsonpath"
)

func (r *run) checkPlacement(x *PlacementExpect) []string {
	label := cmp.Or(x.Label, v1.LabelHostname)
	key := fullName(x.Gang)
	counts := r.domains(label, func(p *podRecord) bool { return x.Gang != "" && p.gang == key || globAny(x.Pods, p.name) })
	what := fmt.Sprintf("placement of %s%v by %s", x.Gang, x.Pods, label)
	var out []string
	if x.Domains != nil && !x.Domains.Has(len(counts)) {
		out = append(out, fmt.Sprintf("%s: got %d domains %v, want %s", what, len(counts), counts, x.Domains))
	}
	for _, domain := range keys(counts) {
		if len(x.In) > 0 && !slices.Contains(x.In, domain) {
			out = append(out, fmt.Sprintf("%s: got %d in %q, want them in %v", what, counts[domain], domain, x.In))
		}
		if x.PerDomain != nil && !x.PerDomain.Has(counts[domain]) {
			out = append(out, fmt.Sprintf("%s: got %d in %q, want %s in each", what, counts[domain], domain, x.PerDomain))
		}
	}
	for _, domain := range keys(x.Counts) {
		if want := x.Counts[domain]; !want.Has(counts[domain]) {
			out = append(out, fmt.Sprintf("%s: got %d in %q, want %s", what, counts[domain], domain, want))
		}
	}
	return out
}

// domains counts the bound pods that match by a label of their nodes. The recorder is locked.
func (r *run) domains(label string, match func(*podRecord) bool) map[string]int {
	counts := map[string]int{}
	for _, p := range r.rec.live(func(p *podRecord) bool { return p.bound() && match(p) }) {
		if node := r.rec.nodes[p.pod.Spec.NodeName]; node != nil {
			counts[node.Labels[label]]++
		}
	}
	return counts
}

func (r *run) checkEvent(x *EventExpect) []string {
	kind, want := cmp.Or(x.Kind, "Pod"), AtLeast(1)
	if x.Count != nil {
		want = *x.Count
	}
	var about, hits []string
	for _, e := range r.rec.events {
		o := e.InvolvedObject
		name := o.Namespace + "/" + o.Name // with a slash in front where it is in no namespace, which may be left out
		if o.Kind != kind || !glob(x.Name, name) && !glob(x.Name, fullName(strings.TrimPrefix(name, "/"))) {
			continue
		}
		text := fmt.Sprintf("%s/%s %s %s: %s", o.Namespace, o.Name, e.Type, e.Reason, e.Message)
		about = append(about, text)
		if (x.Type == "" || x.Type == e.Type) && x.Reason.Matches(e.Reason) && x.Message.Matches(e.Message) {
			hits = append(hits, text)
		}
	}
	if want.Has(len(hits)) {
		return nil
	}
	slices.Sort(about)
	return []string{fmt.Sprintf("events on %s %s with type %q, reason %q, message %q: got %d, want %s; of such objects there are %d events %q",
		kind, x.Name, x.Type, x.Reason.String(), x.Message.String(), len(hits), want, len(about), about[:min(len(about), 8)])}
}

// checkOrder compares when pods were first seen bound; the watch shows bindings in their order.
func (r *run) checkOrder(x *OrderExpect) []string {
	var out []string
	var last, first *podRecord
	for _, p := range r.rec.pods {
		if globAny(x.First, p.name) {
			if p.boundAt.IsZero() {
				out = append(out, fmt.Sprintf("order: pod %s is not bound; want it bound before %v", p.name, x.Then))
			} else if last == nil || p.boundAt.After(last.boundAt) {
				last = p
			}
		}
		if globAny(x.Then, p.name) && !p.boundAt.IsZero() && (first == nil || p.boundAt.Before(first.boundAt)) {
			first = p
		}
	}
	if last != nil && first != nil && !last.boundAt.Before(first.boundAt) {
		out = append(out, fmt.Sprintf("order: pod %s was bound %s before pod %s; want all of %v before any of %v",
			first.name, last.boundAt.Sub(first.boundAt).Round(time.Millisecond), last.name, x.First, x.Then))
	}
	return out
}

func (r *run) checkObject(ctx context.Context, x *ObjectExpect) ([]string, error) {
	namespace, base := split(x.Name)
	if x.Cluster {
		namespace, base = "", x.Name
	}
	client, err := r.clientFor(schema.FromAPIVersionAndKind(x.APIVersion, x.Kind), namespace)
	if err != nil {
		return []string{err.Error()}, nil // it may be served later
	}
	what := fmt.Sprintf("%s %s", x.Kind, x.Name)
	live, err := find(ctx, client, base)
	switch {
	case apierrors.IsNotFound(err) && x.Absent:
		return nil, nil
	case err != nil:
		return []string{fmt.Sprintf("%s: %v", what, err)}, nil
	case x.Absent:
		return []string{fmt.Sprintf("%s: it is there; want it gone", what)}, nil
	}
	var out []string
	for _, path := range keys(x.Fields) {
		want := x.Fields[path]
		got, err := field(live.Object, path)
		if err != nil {
			return nil, err
		}
		if !want.Matches(got) {
			out = append(out, fmt.Sprintf("%s: %s: got %q, want %s", what, path, got, want.String()))
		}
	}
	return out, nil
}

// find returns the only object of a name, which may have * and ? in it.
func find(ctx context.Context, client dynamic.ResourceInterface, name string) (*unstructured.Unstructured, error) {
	if !strings.ContainsAny(name, "*?") {
		return client.Get(ctx, name, metav1.GetOptions{})
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing: %w", err)
	}
	named := slices.DeleteFunc(list.Items, func(o unstructured.Unstructured) bool {
		ok, err := path.Match(name, o.GetName())
		return err != nil || !ok
	})
	switch len(named) {
	case 0:
		return nil, apierrors.NewNotFound(schema.GroupResource{}, name)
	case 1:
		return &named[0], nil
	}
	return nil, fmt.Errorf("there are %d of them; want one", len(named))
}

// field evaluates a JSONPath without braces; what does not exist is empty.
func field(object map[string]any, path string) (string, error) {
	expression := jsonpath.New("field").AllowMissingKeys(true)
	if err := expression.Parse("{" + path + "}"); err != nil {
		return "", fmt.Errorf("reading the path %s: %w", path, err)
	}
	var out bytes.Buffer
	if err := expression.Execute(&out, object); err != nil {
		return "", fmt.Errorf("reading the path %s: %w", path, err)
	}
	return out.String(), nil
}

// checkWrites counts requests in the audit log.
func (r *run) checkWrites(list []WritesExpect) ([]string, error) {
	writes, err := r.audit.writes(filepath.Base(r.scheduler.binary))
	if err != nil {
		return nil, err
	}
	var out []string
	for i := range list {
		x := &list[i]
		since := r.begin
		if x.Since != "" {
			since = r.steps[x.Since]
		}
		got, by := 0, map[string]int{}
		for j := range writes {
			if x.matches(&writes[j], since) {
				got++
				by[writes[j].Verb+" "+writes[j].resource()]++
			}
		}
		if !x.Count.Has(got) {
			out = append(out, fmt.Sprintf("writes of the scheduler to %q %q since %q: got %d %v, want %s", x.Resource, x.Name, x.Since, got, by, x.Count))
		}
	}
	return out, nil
}

// checkStock compares where pods are with where the stock scheduler put them.
func (r *run) checkStock(patterns []string) []string {
	var out []string
	if len(patterns) == 0 {
		return nil
	}
	nodes := r.nodesOf(patterns)
	for _, name := range keys(r.stockNodes) {
		if globAny(patterns, name) && nodes[name] != r.stockNodes[name] {
			out = append(out, fmt.Sprintf("pod %s: got node %q, want %q, where the stock scheduler puts it", name, nodes[name], r.stockNodes[name]))
		}
	}
	return out
}

// nodesOf returns the nodes of the pods that match. The recorder is locked.
func (r *run) nodesOf(patterns []string) map[string]string {
	nodes := map[string]string{}
	for _, p := range r.rec.live(func(p *podRecord) bool { return globAny(patterns, p.name) }) {
		nodes[p.name] = p.pod.Spec.NodeName
	}
	return nodes
}

// rehearse stands for an expectation while the stock scheduler runs: it waits for the pods whose nodes
// are to be compared, and notes the nodes.
func (r *run) rehearse(ctx context.Context, e *Expect) error {
	var nodes map[string]string
	if len(e.SameNodesAsStock) == 0 {
		return nil
	}
	err := r.waitWithin(ctx, defaultWithin, func() bool {
		nodes = r.nodesOf(e.SameNodesAsStock)
		for _, node := range nodes {
			if node == "" {
				return false
			}
		}
		return len(nodes) > 0
	})
	if err != nil {
		return fmt.Errorf("waiting for the stock scheduler to bind %v: %w", nodes, err)
	}
	maps.Copy(r.stockNodes, nodes)
	return nil
}
