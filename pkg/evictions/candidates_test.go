package evictions

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/lockstep-sh/lockstep/pkg/planning/victim"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangstate"
)

// nodes are n0, n1 and so on.
type nodes []fwk.NodeInfo

func (n nodes) Len() int                   { return len(n) }
func (n nodes) Node(node int) fwk.NodeInfo { return n[node] }
func (n nodes) Index(name string) (int, bool) {
	i := slices.IndexFunc(n, func(info fwk.NodeInfo) bool { return info.Node().Name == name })
	return i, i >= 0
}

func nodesWith(pods []*v1.Pod) nodes {
	var list nodes
	for i := range 3 {
		info := framework.NewNodeInfo()
		info.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}})
		for _, pod := range pods {
			if pod.Spec.NodeName == info.Node().Name {
				info.AddPod(pod)
			}
		}
		list = append(list, info)
	}
	return list
}

// words describes gangs: their ID, minimum and pods. A pod in brackets is elsewhere, one with a ! protected, one with a
// ? guarded.
func words(gangs []victim.Gang) []string {
	var list []string
	for _, g := range gangs {
		text := fmt.Sprintf("%s: %d of", strings.TrimPrefix(g.ID, profile+"/default/"), g.Min)
		for _, pod := range g.Pods {
			word := string(pod.UID)
			if pod.Protected {
				word += "!"
			}
			if len(pod.Guards) > 0 {
				word += "?"
			}
			if !pod.Local {
				word = "(" + word + ")"
			}
			if pod.Part != "" {
				word = strings.TrimPrefix(pod.Part, "default/") + "/" + word
			}
			text += " " + word
		}
		list = append(list, text)
	}
	return list
}

// TestCandidates: which pods may be evicted on the nodes n0 and n1.
func TestCandidates(t *testing.T) {
	now := time.Now()
	single, rigid, far := members("s", 1, 0, "n0"), members("g", 2, 2, "n0"), members("g", 3, 2, "n2")[2]
	key := gangspec.Key{Namespace: "default", Name: "g"}
	leaving := members("g", 2, 2, "n1")[1]
	leaving.DeletionTimestamp = &metav1.Time{Time: now}
	guarded := members("s", 1, 0, "n0")
	guarded[0].Labels = map[string]string{"app": "a"}
	other := members("h", 2, 2, "n1")
	broken := func(f gangstate.RunningGang, since time.Duration) gangstate.RunningGang {
		f.BrokenSince = now.Add(-since)
		return f
	}
	apart := members("g", 2, 2, "n0")
	for _, pod := range apart {
		pod.Labels = map[string]string{"single": "yes"}
	}
	together := runs("g", 1, append(slices.Clone(rigid), far)...)
	together.Whole = true
	pair := []gangstate.RunningGang{runs("g", 1, rigid...), runs("h", 2, other...)}
	ended := []gangstate.RunningGang{runs("g", 2, rigid...), runs("h", 2)}
	for sentence, c := range map[string]struct {
		pods    []*v1.Pod
		runs    known
		own     string
		stays   string // a pod that may not be evicted
		podwise bool
		want    []string
	}{
		"a pod by itself":                               {pods: single, want: []string{"pod:s-0: 1 of s-0"}},
		"one that a budget guards":                      {pods: guarded, want: []string{"pod:s-0: 1 of s-0?"}},
		"one that may not go is protected":              {pods: single, stays: "s-0", want: []string{"pod:s-0: 1 of s-0!"}},
		"a gang, with what it has elsewhere":            {pods: append(slices.Clone(rigid), far), runs: known{key: {runs("g", 2, append(slices.Clone(rigid), far)...)}}, want: []string{"g: 2 of g-0 g-1 (g-2)"}},
		"one that has pods only elsewhere is none":      {pods: []*v1.Pod{far}, runs: known{key: {runs("g", 1, far)}}},
		"whom room is sought for makes none":            {pods: append(slices.Clone(rigid), single...), own: "g", want: []string{"pod:s-0: 1 of s-0"}},
		"pods that end anyhow do not count":             {pods: append(members("g", 1, 2, "n0"), leaving), runs: known{key: {runs("g", 1, rigid[0], leaving)}}, want: []string{"g: 1 of g-0"}},
		"a stranger says its minimum":                   {pods: append(slices.Clone(rigid), far), want: []string{"g: 2 of g-0 g-1 (g-2)"}},
		"one whose profile has not seen its pods, too":  {pods: rigid, runs: known{key: {runs("g", 1)}}, want: []string{"g: 2 of g-0 g-1"}},
		"without its other pods, if they end anyhow":    {pods: append(members("g", 1, 1, "n0"), leaving), want: []string{"g: 1 of g-0"}},
		"gangs that start together are parts of one":    {pods: append(slices.Clone(rigid), other...), runs: known{key: pair, pair[1].Key: pair}, want: []string{"g: 3 of g/g-0 g/g-1 h/h-0 h/h-1"}},
		"but for those that have ended":                 {pods: rigid, runs: known{key: ended}, want: []string{"g: 2 of g-0 g-1"}},
		"a gang in repair goes as it is, or not at all": {pods: rigid, runs: known{key: {broken(runs("g", 3, rigid...), time.Second)}}, want: []string{"g: 2 of g-0 g-1"}},
		"one that is broken for long is below it":       {pods: rigid, runs: known{key: {broken(runs("g", 3, rigid...), time.Hour)}}, want: []string{"g: 3 of g-0 g-1"}},
		"one that goes together needs all that runs":    {pods: append(slices.Clone(rigid), far), runs: known{key: {together}}, want: []string{"g: 3 of g-0 g-1 (g-2)"}},
		"pods of a PodGroup that is no gang":            {pods: apart, want: []string{"pod:g-0: 1 of g-0", "pod:g-1: 1 of g-1"}},
		"where gangs do not count they are pods":        {pods: rigid, podwise: true, want: []string{"pod:g-0: 1 of g-0", "pod:g-1: 1 of g-1"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			on := nodesWith(c.pods)
			ending, _ := Ending(on, map[types.UID]bool{}, now)
			candidates := &Candidates{
				Nodes: on, Gangs: c.runs, Budgets: list(t, budgetOf("default", "b", app, 0)), Ending: ending, Now: now, Grace: time.Minute,
				Own:     map[Owner]bool{{Profile: profile, Gang: gangspec.Key{Namespace: "default", Name: c.own}}: true},
				Request: func(fwk.PodInfo) victim.Vector { return victim.Vector{v1.ResourceCPU: 1} },
			}
			gangs := candidates.GangsOn([]int{0, 1}, func(pod *v1.Pod) bool { return pod.Name != c.stays }, !c.podwise)
			if diff := cmp.Diff(c.want, words(gangs)); diff != "" {
				t.Errorf("candidates (-want +got):\n%s", diff)
			}
			for _, g := range gangs {
				if candidates.Known()[g.ID].Name() == "" {
					t.Errorf("nothing is known of %s", g.ID)
				}
				for _, pod := range g.Pods {
					at, ok := candidates.Place(pod.UID)
					if one := candidates.Pod(pod.UID); !ok || one == nil || one.Spec.NodeName != on[at.Node].Node().Name || pod.Request[v1.ResourceCPU] != 1 {
						t.Errorf("pod %s is %v at %v, and gives back %v", pod.UID, one, at, pod.Request)
					}
				}
			}
		})
	}
}

// TestEnding: pods that are being deleted, or evicted, leave; pods that should have ended long ago may never end.
func TestEnding(t *testing.T) {
	now := time.Now()
	pods := members("v", 4, 0, "n0")
	pods[1].DeletionTimestamp = &metav1.Time{Time: now}
	pods[2].DeletionTimestamp = &metav1.Time{Time: now.Add(-time.Hour)}
	ending, leaving := Ending(nodesWith(pods), map[types.UID]bool{"v-3": true}, now)
	if diff := cmp.Diff(map[types.UID]bool{"v-1": true, "v-2": true, "v-3": true}, ending); diff != "" {
		t.Errorf("ending (-want +got):\n%s", diff)
	}
	var names []string
	for _, at := range leaving {
		names = append(names, at.Info.GetPod().Name)
	}
	if diff := cmp.Diff([]string{"v-1", "v-3"}, names); diff != "" {
		t.Errorf("leaving (-want +got):\n%s", diff)
	}
}
