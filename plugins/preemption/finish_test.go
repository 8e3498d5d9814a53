package preemption

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/plugins/internal/gang"
)

// TestFinish: what an interrupted eviction has begun is finished where a gang is left in part, and
// nowhere else.
func TestFinish(t *testing.T) {
	marked := func(pods []*v1.Pod) []*v1.Pod {
		for _, pod := range pods {
			pod.Status.Conditions = []v1.PodCondition{{
				Type: v1alpha1.PodEvicting, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler, Message: profile,
			}}
		}
		return pods
	}
	for sentence, c := range map[string]struct {
		pods []*v1.Pod
		min  int
		keep bool // broken gangs are left alone
		left string
	}{
		"a gang of which all are marked and none is gone runs on":      {pods: marked(members("g", 3, 3, 10, 1, "n0")), min: 3, left: "g-0 g-1 g-2"},
		"one that has lost members goes whole":                         {pods: marked(members("g", 2, 3, 10, 1, "n0")), min: 3},
		"also those of it that were not marked yet":                    {pods: slices.Concat(marked(members("g", 1, 3, 10, 1, "n0")), members("g", 2, 3, 10, 1, "n0")[1:]), min: 3},
		"but for what was begun nobody goes where they are left alone": {pods: slices.Concat(marked(members("g", 1, 3, 10, 1, "n0")), members("g", 2, 3, 10, 1, "n0")[1:]), min: 3, keep: true, left: "g-1"},
		"a pod in no gang stays: it is chosen again if it has to go":   {pods: marked(members("single", 1, 0, 10, 1, "n0")), min: 1, left: "single-0"},
		"nobody goes who is not marked":                                {pods: members("g", 2, 3, 10, 1, "n0"), min: 3, left: "g-0 g-1"},
	} {
		t.Run(sentence, func(t *testing.T) {
			var objects []runtime.Object
			key := gang.Key{Namespace: "default", Name: "g"}
			f := gang.Footprint{Key: key, Min: c.min}
			for _, pod := range c.pods {
				objects = append(objects, pod)
				f.Running = append(f.Running, gang.Placed{Pod: pod, Node: pod.Spec.NodeName})
			}
			s := newStage(t, nil, nil, objects...)
			s.Roster.Register(profile, known{key: {f}})
			s.args.EvictBrokenGangs = !c.keep
			for _, pod := range c.pods {
				s.unfinished.note(pod.UID, s.marked(pod), time.Now()) // if the informer has not yet
			}
			s.finish(s.ctx, time.Now().Add(time.Hour))
			list, err := s.handle.ClientSet().CoreV1().Pods("").List(s.ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for i := range list.Items {
				names = append(names, list.Items[i].Name)
			}
			slices.Sort(names)
			if got := strings.Join(names, " "); got != c.left {
				t.Errorf("left %q, want %q", got, c.left)
			}
		})
	}
}
