package registry

import (
	"context"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	tf "k8s.io/kubernetes/pkg/scheduler/testing/framework"

	"github.com/lockstep-sh/lockstep/pkg/framework/watches"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
	"github.com/lockstep-sh/lockstep/pkg/rules/turns"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
	"github.com/lockstep-sh/lockstep/test/helpers/sample"
)

const testProfile = sample.Profile

var train = gangspec.Key{Namespace: "default", Name: "train"}

// stage is a registry with real frameworks. It admits members. Nothing runs.
type stage struct {
	*Registry
	ctx context.Context
	// acted are the effects that the adapters got, by profile.
	acted map[string]gangstate.Effects
}

type adapter struct {
	s       *stage
	profile string
}

func (a adapter) Act(_ context.Context, e gangstate.Effects) {
	sum := a.s.acted[a.profile]
	sum.Changed, sum.Activate = sum.Changed.Union(e.Changed), slices.Concat(sum.Activate, e.Activate)
	sum.Problems = slices.Concat(sum.Problems, e.Problems)
	a.s.acted[a.profile] = sum
}

func (adapter) Gone(types.UID) {}

func (adapter) Explanation(gangspec.Key) (gangstate.Explanation, bool) {
	return gangstate.Explanation{}, false
}

// noRoom has no job that waits.
type noRoom struct{}

func (noRoom) ApplyGangEffects(string, *gangstate.Effects)       {}
func (noRoom) RecordChange(turns.Change)                         {}
func (noRoom) Recall(*v1.Pod)                                    {}
func (noRoom) SingleMayEnter(*v1.Pod) bool                       { return true }
func (noRoom) RecordSingleFailure(*v1.Pod, turns.AttemptFailure) {}
func (noRoom) ForgetSingle(*v1.Pod)                              {}
func (noRoom) RenewSingle(*v1.Pod)                               {}

func newStage(tb testing.TB, profiles ...string) *stage {
	tb.Helper()
	ctx := idle.Context(tb)
	s := &stage{ctx: ctx, acted: map[string]gangstate.Effects{}, Registry: New(ledger.New(), nil, watches.New())}
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	s.SetRoom(noRoom{})
	var err error
	if s.podsByGang, err = indexPods(factory.Core().V1().Pods().Informer()); err != nil {
		tb.Fatal(err)
	}
	for _, name := range profiles {
		handle, err := tf.NewFramework(ctx, []tf.RegisterPluginFunc{
			tf.RegisterQueueSortPlugin(queuesort.Name, queuesort.New), tf.RegisterBindPlugin(defaultbinder.Name, defaultbinder.New),
		}, name, frameworkruntime.WithClientSet(client), frameworkruntime.WithInformerFactory(factory), frameworkruntime.WithKubeConfig(&rest.Config{}))
		must.Succeed(tb, err)
		s.Register(handle, gangspec.Defaults{WaitTime: time.Minute}, gangstate.Backoff{Initial: time.Second, Max: time.Second}, adapter{s, name}).
			UpdateGangs(ctx, func(g *gangstate.Gangs, now time.Time) gangstate.Effects { return g.Open(now) })
	}
	return s
}

// of returns the gangs of a profile.
func (s *stage) of(profile string) *Profile { return s.all()[profile] }

// makeMembers returns members of gang default/name.
func makeMembers(name string, count int) []*v1.Pod {
	pods := make([]*v1.Pod, count)
	for i := range pods {
		pods[i] = sample.Member(name, i, count).Obj()
	}
	return pods
}
