package page

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// TestMine: callers see the gangs and migrations of the namespaces in which they may list pods, the queues if they may
// list these, and nothing that is of the whole cluster. What they may list is asked once a minute for each.
func TestMine(t *testing.T) {
	red, blue, later := waiting("w0", "short"), waiting("w0", "short"), waiting("w0", "short")
	red.Namespace, blue.Namespace, later.Namespace = "red", "blue", "later"
	queue := &v1alpha1.Queue{}
	queue.Name = "q"
	moved := &v1alpha1.PodMigration{}
	moved.Namespace, moved.Name = "blue", "m"
	f := newFixture(t, red, blue, queue, moved, node("n1", "r1", true))
	f.rights = map[string]int{"red pods red": 0, "red queues.scheduling.lockstep.dev": 0, "blue pods blue": 0, "blue pods later": 0}
	type shown struct{ Gangs, Queues, Migrations int }
	ask := func(caller string) (code int, namespaces []string, of shown) {
		t.Helper()
		response := f.request("GET", minePath, authorization, "Bearer "+caller)
		if response.StatusCode != http.StatusOK {
			return response.StatusCode, nil, shown{}
		}
		var got map[string][]struct{ Namespace string }
		must.Succeed(t, json.NewDecoder(response.Body).Decode(&got))
		if diff := cmp.Diff([]string{"gangs", "migrations", "queues"}, slices.Sorted(maps.Keys(got))); diff != "" {
			t.Errorf("what %s sees (-want +got):\n%s", caller, diff)
		}
		for _, g := range slices.Concat(got["gangs"], got["migrations"]) {
			namespaces = append(namespaces, g.Namespace)
		}
		return response.StatusCode, namespaces, shown{len(got["gangs"]), len(got["queues"]), len(got["migrations"])}
	}
	check := func(caller string, want shown, namespaces ...string) {
		t.Helper()
		code, in, got := ask(caller)
		if code != http.StatusOK || got != want || !slices.Equal(in, namespaces) {
			t.Errorf("%s is answered %d, %+v of %q; want %+v of %q", caller, code, got, in, want, namespaces)
		}
	}
	f.silent = errors.New("no answer")
	if code, _, _ := ask("red"); code != http.StatusServiceUnavailable {
		t.Errorf("where it is not known what red may see: %d", code)
	}
	f.silent = nil
	for range 3 {
		check("red", shown{1, 1, 0}, "red")
		check("blue", shown{1, 0, 1}, "blue", "blue")
		f.clock.Step(reuse)
	}
	first, again := f.request("GET", minePath, authorization, "Bearer red"), f.request("GET", minePath, authorization, "Bearer red")
	if first.Header.Get("ETag") != again.Header.Get("ETag") {
		t.Error("what a caller sees differs at once")
	}
	if f.rights["red pods red"] != 1 || f.rights["blue pods blue"] != 1 {
		t.Errorf("in some seconds it was asked so often what they may list: %v", f.rights)
	}
	must.Succeed(t, f.client.Create(t.Context(), later))
	f.clock.Step(reuse)
	check("blue", shown{2, 0, 1}, "blue", "later", "blue")
	delete(f.rights, "red pods red")
	check("red", shown{1, 1, 0}, "red")
	f.clock.Step(remember)
	check("red", shown{0, 1, 0})
	check("blue", shown{2, 0, 1}, "blue", "later", "blue")
}
