package lease

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// process is a scheduler's lease with a clock of the test's.
type process struct {
	*Lease
	lock  resourcelock.Interface
	clock *atomic.Int64
	ended []string
}

func (p *process) pass(d time.Duration) { p.clock.Add(int64(d)) }

// processOf makes a process that takes part in an election.
func processOf(t *testing.T, client *fake.Clientset, name string) *process {
	t.Helper()
	inner, err := resourcelock.New(resourcelock.LeasesResourceLock, "kube-system", "lockstep-scheduler",
		client.CoreV1(), client.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: name})
	must.Succeed(t, err)
	p := &process{clock: &atomic.Int64{}}
	p.clock.Store(int64(time.Hour))
	p.Lease = New(inner.Describe(), func(err error) { p.ended = append(p.ended, err.Error()) })
	p.now = func() Instant { return Instant(p.clock.Load()) }
	p.lock = p.Lock(inner)
	return p
}

func (p *process) record() resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: p.lock.Identity(), LeaseDurationSeconds: 10}
}

// why returns the error of a write; "" if it is admitted.
func (p *process) why() string {
	if _, err := p.begin("POST x"); err != nil {
		return err.Error()
	}
	p.done(true, 0)
	return ""
}

func TestLock(t *testing.T) {
	ctx := context.Background()
	acquire := func(t *testing.T, p *process) {
		t.Helper()
		must.Succeed(t, p.lock.Create(ctx, p.record()))
	}
	for sentence, c := range map[string]struct {
		do      func(t *testing.T, p *process, client *fake.Clientset)
		refused string // "" where writes are admitted
		ends    string // "" where the process goes on
	}{
		"who stands by writes nothing": {
			do:      func(*testing.T, *process, *fake.Clientset) {},
			refused: "lease kube-system/lockstep-scheduler is not held by this process: POST x is not sent",
		},
		"who leads does": {do: func(t *testing.T, p *process, _ *fake.Clientset) { acquire(t, p) }},
		"until the lease runs out": {
			do: func(t *testing.T, p *process, _ *fake.Clientset) {
				acquire(t, p)
				p.pass(11 * time.Second)
			},
			refused: "lease kube-system/lockstep-scheduler ran out 2s ago: POST x is not sent", ends: "lease kube-system/lockstep-scheduler ran out 2s ago",
		},
		"renewing it in time is enough": {do: func(t *testing.T, p *process, _ *fake.Clientset) {
			acquire(t, p)
			p.pass(8 * time.Second)
			must.Succeed(t, p.lock.Update(ctx, p.record()))
			p.pass(8 * time.Second)
		}},
		"a renewal counts from when it was sent": {
			do: func(t *testing.T, p *process, client *fake.Clientset) {
				acquire(t, p)
				client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
					p.pass(12 * time.Second) // the process is stopped before the answer is read
					return false, nil, nil
				})
				must.Succeed(t, p.lock.Update(ctx, p.record()))
			},
			refused: "ran out 3s ago", ends: "ran out 3s ago",
		},
		"a renewal that failed is none": {
			do: func(t *testing.T, p *process, client *fake.Clientset) {
				acquire(t, p)
				client.PrependReactor("update", "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, errors.New("connection reset")
				})
				p.pass(5 * time.Second)
				if err := p.lock.Update(ctx, p.record()); err == nil {
					t.Fatal("it succeeded")
				}
				p.pass(5 * time.Second)
			},
			refused: "ran out 1s ago", ends: "ran out 1s ago",
		},
		"a lease that is seen in other hands is lost at once": {
			do: func(t *testing.T, p *process, client *fake.Clientset) {
				acquire(t, p)
				other := processOf(t, client, "other")
				if _, _, err := other.lock.Get(ctx); err != nil {
					t.Fatal(err)
				}
				must.Succeed(t, other.lock.Update(ctx, other.record()))
				if _, _, err := p.lock.Get(ctx); err != nil {
					t.Fatal(err)
				}
			},
			refused: "is held by other", ends: "lease kube-system/lockstep-scheduler is held by other",
		},
		"who stands by may see it there": {
			do: func(t *testing.T, p *process, client *fake.Clientset) {
				other := processOf(t, client, "other")
				acquire(t, other)
				if _, _, err := p.lock.Get(ctx); err != nil {
					t.Fatal(err)
				}
			},
			refused: "is not held by this process",
		},
		"who gives it back writes no more, and is not said to have lost it": {
			do: func(t *testing.T, p *process, client *fake.Clientset) {
				acquire(t, p)
				must.Succeed(t, p.lock.Update(ctx, resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}))
				if holder := holder(t, client); holder != "" {
					t.Errorf("held by %q", holder)
				}
				p.pass(time.Minute)
			},
			refused: "is being given back",
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			client := fake.NewClientset()
			p := processOf(t, client, "me")
			c.do(t, p, client)
			if got := p.why(); c.refused == "" && got != "" || !strings.Contains(got, c.refused) {
				t.Errorf("a write is told %q, want %q", got, c.refused)
			}
			if got := strings.Join(p.ended, "; "); c.ends == "" && got != "" || !strings.Contains(got, c.ends) || len(p.ended) > 1 {
				t.Errorf("ended with %q, want %q, once", got, c.ends)
			}
		})
	}
}

func holder(t *testing.T, client *fake.Clientset) string {
	t.Helper()
	object, err := client.Tracker().Get(coordinationv1.SchemeGroupVersion.WithResource("leases"), "kube-system", "lockstep-scheduler")
	must.Succeed(t, err)
	if name := object.(*coordinationv1.Lease).Spec.HolderIdentity; name != nil {
		return *name
	}
	return ""
}

// TestGivingBack: the lease is given back once what was sent is answered, and not while
// something may still be stored.
func TestGivingBack(t *testing.T) {
	free := resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1}
	start := func(t *testing.T) (*process, *fake.Clientset, chan error) {
		client := fake.NewClientset()
		p := processOf(t, client, "me")
		must.Succeed(t, p.lock.Create(t.Context(), p.record()))
		if _, err := p.begin("POST x"); err != nil {
			t.Fatal(err)
		}
		given := make(chan error, 1)
		go func() { given <- p.lock.Update(t.Context(), free) }()
		await.Until(t, "the lease is being given back", func() bool { return p.why() != "" })
		select {
		case err := <-given:
			t.Fatalf("given back, with %v, while a write was under way", err)
		case <-time.After(20 * time.Millisecond):
		}
		return p, client, given
	}
	t.Run("answered", func(t *testing.T) {
		p, client, given := start(t)
		p.done(true, p.now()+Instant(9*time.Second))
		if err := await.Value(t, "the lease to be given back", given); err != nil || holder(t, client) != "" {
			t.Errorf("error %v, held by %q", err, holder(t, client))
		}
	})
	t.Run("without an answer", func(t *testing.T) {
		p, client, given := start(t)
		p.done(false, p.now()+Instant(9*time.Second))
		if err := await.Value(t, "giving back to fail", given); err == nil || !strings.Contains(err.Error(), "0 writes are under way and some may still be stored for 9s") || holder(t, client) != "me" {
			t.Errorf("error %v, held by %q", err, holder(t, client))
		}
		p.pass(9 * time.Second)
		if err := p.lock.Update(t.Context(), free); err != nil {
			t.Errorf("error %v once nothing can be stored any more", err)
		}
	})
}
