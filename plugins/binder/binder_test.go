package binder

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/config"
)

// slow is a binder whose calls last until letGo.
type slow struct {
	calls []string // "pod on node"
	letGo chan struct{}
}

func (b *slow) bind(_ context.Context, one *v1.Binding) error {
	b.calls = append(b.calls, one.Name+" on "+one.Target.Name)
	<-b.letGo
	return nil
}

func TestBind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &slow{letGo: make(chan struct{})}
		pl := &Binder{bind: inner.bind, slots: slotsOf(1)}
		ctx, cancel := context.WithCancel(t.Context())
		answers := map[string]*fwk.Status{}
		bind := func(ctx context.Context, pod string) {
			go func() {
				answers[pod] = pl.Bind(ctx, framework.NewCycleState(), st.MakePod().Namespace("ns").Name(pod).Obj(), "node")
			}()
			synctest.Wait()
		}
		bind(t.Context(), "a")
		bind(ctx, "b")
		if got := strings.Join(inner.calls, ", "); got != "a on node" {
			t.Errorf("calls in flight %q, want that of a alone", got)
		}
		cancel()
		synctest.Wait()
		if status := answers["b"]; status.Code() != fwk.Error || !errors.Is(status.AsError(), context.Canceled) || !strings.Contains(status.Message(), "ns/b") {
			t.Errorf("status %v of a pod whose cycle was cancelled, want an error that names it", status)
		}
		inner.letGo <- struct{}{}
		synctest.Wait()
		if status, answered := answers["a"]; !answered || !status.IsSuccess() {
			t.Errorf("status %v, answered: %v; want success", status, answered)
		}
		bind(t.Context(), "c")
		if got := strings.Join(inner.calls, ", "); got != "a on node, c on node" {
			t.Errorf("calls %q: the slot was not given back", got)
		}
		close(inner.letGo)
	})
}

func TestNew(t *testing.T) {
	for sentence, c := range map[string]struct {
		args  runtime.Object
		limit int
		want  string // in the error
	}{
		"arguments of its own":    {args: &config.BoundedBinderArgs{MaxInFlight: 7}, limit: 7},
		"no arguments":            {limit: 48},
		"arguments of another":    {args: &config.GangArgs{}, want: "want BoundedBinderArgs, got *config.GangArgs"},
		"a bound that bounds all": {args: &config.BoundedBinderArgs{}, want: "profiles[ours].pluginConfig[BoundedBinder].args.maxInFlight: Invalid value: 0"},
	} {
		t.Run(sentence, func(t *testing.T) {
			slots := NewSlots()
			plugin, err := New(slots)(t.Context(), c.args, clientOf{})
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want %s", err, c.want)
				}
				return
			}
			if err != nil || plugin.Name() != Name || slots.limit != c.limit {
				t.Errorf("plugin %v with a bound of %d, %v", plugin, slots.limit, err)
			}
		})
	}
}
