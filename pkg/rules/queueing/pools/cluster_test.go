package pools

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"

	"github.com/lockstep-sh/lockstep/apis/config"
	vector "github.com/lockstep-sh/lockstep/pkg/rules/resource"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

const gpu = v1.ResourceName("nvidia.com/gpu")

func nodeOf(name string, gpus int64, of map[string]string, taints ...v1.Taint) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: of}, Spec: v1.NodeSpec{Taints: taints},
		Status: v1.NodeStatus{Allocatable: v1.ResourceList{gpu: *resource.NewQuantity(gpus, resource.DecimalSI)}},
	}
}

func taint(key string, effect v1.TaintEffect) v1.Taint {
	return v1.Taint{Key: key, Value: "yes", Effect: effect}
}

func tolerating(keys ...string) *v1.Pod {
	pod := &v1.Pod{}
	for _, key := range keys {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, v1.Toleration{Key: key, Operator: v1.TolerationOpExists})
	}
	return pod
}

func selecting(pod *v1.Pod, key, value string) *v1.Pod {
	pod.Spec.NodeSelector = map[string]string{key: value}
	return pod
}

// pinned makes a pod ask for one of some nodes by name, as a daemon does.
func pinned(pod *v1.Pod, names ...string) *v1.Pod {
	required := &v1.NodeSelector{}
	for _, name := range names {
		required.NodeSelectorTerms = append(required.NodeSelectorTerms, v1.NodeSelectorTerm{
			MatchFields: []v1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{name}}},
		})
	}
	pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}}
	return pod
}

func models(names ...string) []config.Pool {
	var pools []config.Pool
	for _, name := range names {
		pools = append(pools, config.Pool{Name: name, NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"model": name}}})
	}
	return pools
}

func mustNew(t *testing.T, pools []config.Pool) *Cluster {
	t.Helper()
	c, err := New(pools)
	must.Succeed(t, err)
	return c
}

// without returns a vector without amounts of 0.
func without(v vector.Vector) vector.Vector {
	out := vector.Vector{}
	for name, amount := range v {
		if amount != 0 {
			out[name] = amount
		}
	}
	return out
}

// TestTotal: what there is to share of one plain node of 1 GPU, and one of 2 as the case has it.
func TestTotal(t *testing.T) {
	const (
		noSchedule = v1.TaintEffectNoSchedule
		noExecute  = v1.TaintEffectNoExecute
	)
	notReady := func(effects ...v1.TaintEffect) (list []v1.Taint) {
		for _, effect := range effects {
			list = append(list, v1.Taint{Key: v1.TaintNodeNotReady, Effect: effect})
		}
		return list
	}
	// What the API server's admission gives every pod.
	admitted := &v1.Pod{Spec: v1.PodSpec{Tolerations: []v1.Toleration{{Key: v1.TaintNodeNotReady, Operator: v1.TolerationOpExists, Effect: noExecute, TolerationSeconds: ptr.To[int64](300)}}}}
	gangs := []config.Pool{{Name: "gangs", NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"for": "gangs"}}, Tolerations: tolerating("gangs").Spec.Tolerations}}
	for sentence, c := range map[string]struct {
		pools  []config.Pool
		labels map[string]string
		taints []v1.Taint
		cordon bool
		pods   []*v1.Pod
		used   int64
		want   vector.Vector
	}{
		"all without taints":                                {want: vector.Vector{gpu: 3}},
		"a cordoned node has nothing":                       {cordon: true, want: vector.Vector{gpu: 1}},
		"but for what is there":                             {cordon: true, used: 1, want: vector.Vector{gpu: 2}},
		"or what it has, if that is less":                   {cordon: true, used: 5, want: vector.Vector{gpu: 3}},
		"what is on a node that is not ready":               {taints: notReady(noSchedule, noExecute), pods: []*v1.Pod{admitted}, used: 1, want: vector.Vector{gpu: 2}},
		"what is on a node that counts comes out of that":   {used: 1, want: vector.Vector{gpu: 3}},
		"what is on a cordoned node of a pool":              {pools: models("b"), labels: map[string]string{"model": "b"}, cordon: true, used: 1, want: vector.Vector{gpu: 1, "nvidia.com/gpu@b": 1}},
		"a taint that nobody tolerates":                     {taints: []v1.Taint{taint("gangs", noSchedule)}, pods: []*v1.Pod{tolerating(), tolerating("other")}, want: vector.Vector{gpu: 1}},
		"a taint that somebody tolerates":                   {taints: []v1.Taint{taint("gangs", noSchedule)}, pods: []*v1.Pod{tolerating(), tolerating("gangs")}, want: vector.Vector{gpu: 3}},
		"one that tolerates whatever there is says nothing": {taints: []v1.Taint{taint("gangs", noSchedule)}, pods: []*v1.Pod{tolerating("")}, want: vector.Vector{gpu: 1}},
		"of two taints one pod has to tolerate both":        {taints: []v1.Taint{taint("gangs", noSchedule), taint("more", noExecute)}, pods: []*v1.Pod{tolerating("more"), tolerating("gangs")}, want: vector.Vector{gpu: 1}},
		"and does":                                           {taints: []v1.Taint{taint("gangs", noSchedule), taint("more", noExecute)}, pods: []*v1.Pod{tolerating("more", "gangs")}, want: vector.Vector{gpu: 3}},
		"a taint that only puts off":                         {taints: []v1.Taint{taint("gangs", v1.TaintEffectPreferNoSchedule)}, want: vector.Vector{gpu: 3}},
		"a node that is not ready":                           {taints: notReady(noSchedule, noExecute), pods: []*v1.Pod{admitted}, want: vector.Vector{gpu: 1}},
		"a node that is not ready, by NoExecute alone":       {taints: notReady(noExecute), pods: []*v1.Pod{admitted}, want: vector.Vector{gpu: 1}},
		"pools by label":                                     {pools: models("a", "b"), labels: map[string]string{"model": "b"}, want: vector.Vector{gpu: 1, "nvidia.com/gpu@b": 2}},
		"a pool says what its pods tolerate, though none is": {pools: gangs, labels: map[string]string{"for": "gangs"}, taints: []v1.Taint{taint("gangs", noSchedule)}, want: vector.Vector{gpu: 1, "nvidia.com/gpu@gangs": 2}},
		"and what they do not, though one does":              {pools: gangs, labels: map[string]string{"for": "gangs"}, taints: []v1.Taint{taint("gangs", noSchedule), taint("broken", noSchedule)}, pods: []*v1.Pod{tolerating("gangs", "broken")}, want: vector.Vector{gpu: 1}},
		"a pool that says nothing goes by pods":              {pools: models("a"), labels: map[string]string{"model": "a"}, taints: []v1.Taint{taint("gangs", noSchedule)}, pods: []*v1.Pod{tolerating("gangs")}, want: vector.Vector{gpu: 1, "nvidia.com/gpu@a": 2}},
	} {
		t.Run(sentence, func(t *testing.T) {
			cluster := mustNew(t, c.pools)
			cluster.SetNode(nodeOf("plain", 1, nil))
			other := nodeOf("other", 2, c.labels, c.taints...)
			other.Spec.Unschedulable = c.cordon
			cluster.SetNode(other)
			cluster.Use("other", vector.Vector{gpu: c.used}, 1)
			var classes []*Class
			for _, pod := range c.pods {
				classes = append(classes, cluster.Enter(pod))
			}
			if diff := cmp.Diff(c.want, without(cluster.Total())); diff != "" {
				t.Errorf("shared (-want +got):\n%s", diff)
			}
			for _, class := range classes {
				cluster.Leave(class)
			}
			cluster.Use("other", vector.Vector{gpu: c.used}, -1)
			cluster.DropNode("other")
			cluster.DropNode("plain")
			if left := without(cluster.Total()); len(left)+len(cluster.used)+len(cluster.byNode)+len(cluster.taints)+len(cluster.tolerations)+len(cluster.classes) > 0 {
				t.Errorf("%v, %d sets of taints, %d of tolerations and %d classes are left of nothing", left, len(cluster.taints), len(cluster.tolerations), len(cluster.classes))
			}
		})
	}
}

// TestUncounted: free capacity on nodes that no pod can come to is listed by the reason.
func TestUncounted(t *testing.T) {
	cluster := mustNew(t, nil)
	cordoned := nodeOf("cordoned", 4, nil)
	cordoned.Spec.Unschedulable = true
	for _, node := range []*v1.Node{
		nodeOf("plain", 1, nil), cordoned,
		nodeOf("a", 2, nil, taint("broken", v1.TaintEffectNoSchedule)), nodeOf("b", 3, nil, taint("broken", v1.TaintEffectNoSchedule)),
		nodeOf("c", 8, nil, taint("gangs", v1.TaintEffectNoSchedule)),
	} {
		cluster.SetNode(node)
	}
	cluster.Use("b", vector.Vector{gpu: 1}, 1)
	cluster.Enter(tolerating("gangs"))
	want := []Uncounted{{Amount: vector.Vector{gpu: 4}, Nodes: 2, Why: "taint broken"}, {Amount: vector.Vector{gpu: 4}, Nodes: 1, Why: "cordoned"}}
	got := cluster.Uncounted()
	for i := range got {
		got[i].Amount = vector.Vector{gpu: got[i].Amount[gpu]}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestPools: which pools a pod may use.
func TestPools(t *testing.T) {
	pools := append(models("a", "b"), config.Pool{Name: "none", NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"model": "none"}}})
	affine := &v1.Pod{Spec: v1.PodSpec{Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{
		{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "model", Operator: v1.NodeSelectorOpIn, Values: []string{"none"}}}},
	}}}}}}
	for sentence, c := range map[string]struct {
		pod  *v1.Pod
		want []string
	}{
		"any without taints":                         {&v1.Pod{}, []string{"b", "default"}},
		"what tolerates whatever there is":           {tolerating(""), []string{"a", "b", "default"}},
		"with the taint all":                         {tolerating("gangs"), []string{"a", "b", "default"}},
		"by its selector":                            {selecting(tolerating("gangs"), "model", "a"), []string{"a"}},
		"not where a taint is in its way":            {selecting(tolerating(), "zone", "1"), []string{"b"}},
		"no node at all, by the label that it names": {selecting(tolerating(), "model", "none"), []string{"none"}},
		"or by affinity":                             {affine, []string{"none"}},
		"no node at all, and no label":               {selecting(tolerating(), "zone", "9"), []string{"default"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			cluster := mustNew(t, pools)
			class := cluster.Enter(c.pod)
			cluster.SetNode(nodeOf("a1", 1, map[string]string{"model": "a", "zone": "1"}, taint("gangs", v1.TaintEffectNoSchedule)))
			cluster.SetNode(nodeOf("b1", 1, map[string]string{"model": "b", "zone": "1"}))
			cluster.SetNode(nodeOf("plain", 1, nil))
			if diff := cmp.Diff(c.want, class.Pools()); diff != "" {
				t.Errorf("pools (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.want, cluster.Enter(c.pod).Pools()); diff != "" {
				t.Errorf("pools of the next one (-want +got):\n%s", diff)
			}
		})
	}
}

// world is what a cluster was told, to be computed from the beginning.
type world struct {
	*rand.Rand
	pools []config.Pool
	nodes map[string]*v1.Node
	pods  map[types.UID]*v1.Pod
	// foreign are pods of other schedulers, by the node that they are on, with one GPU each.
	foreign map[types.UID]string
	// used is what pods that share have on nodes.
	used map[string]int64
}

func (w *world) node() *v1.Node {
	n := nodeOf(fmt.Sprint("n", w.IntN(8)), w.Int64N(5), map[string]string{"model": []string{"a", "b", "c"}[w.IntN(3)], "zone": fmt.Sprint(w.IntN(2))})
	for _, key := range []string{"gangs", "more"} {
		if w.IntN(3) == 0 {
			n.Spec.Taints = append(n.Spec.Taints, taint(key, []v1.TaintEffect{v1.TaintEffectNoSchedule, v1.TaintEffectNoExecute, v1.TaintEffectPreferNoSchedule}[w.IntN(3)]))
		}
	}
	n.Spec.Unschedulable = w.IntN(6) == 0
	return n
}

func (w *world) pod() *v1.Pod {
	pod := tolerating([][]string{nil, {"gangs"}, {"gangs", "more"}, {""}}[w.IntN(4)]...)
	if w.IntN(2) == 0 {
		selecting(pod, []string{"model", "zone"}[w.IntN(2)], []string{"a", "b", "1"}[w.IntN(3)])
	}
	if w.IntN(4) == 0 {
		pinned(pod, fmt.Sprint("n", w.IntN(8)), fmt.Sprint("n", w.IntN(8)))
	}
	return pod
}

func (w *world) poolOf(n *v1.Node) string {
	for _, p := range w.pools {
		if selector, err := metav1.LabelSelectorAsSelector(p.NodeSelector); err == nil && selector.Matches(labels.Set(n.Labels)) {
			return p.Name
		}
	}
	return "default"
}

func hard(n *v1.Node) []v1.Taint {
	return slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t v1.Taint) bool { return t.Effect == v1.TaintEffectPreferNoSchedule })
}

// total looks at all nodes and all pods.
func (w *world) total() vector.Vector {
	total := vector.Vector{}
	for _, n := range w.nodes {
		usable := len(hard(n)) == 0
		for _, pod := range w.pods {
			means := slices.DeleteFunc(slices.Clone(pod.Spec.Tolerations), func(t v1.Toleration) bool { return t.Key == "" })
			usable = usable || tolerateAll(means, hard(n))
		}
		for _, p := range w.pools {
			if p.Name == w.poolOf(n) && len(p.Tolerations) > 0 {
				usable = tolerateAll(p.Tolerations, hard(n))
			}
		}
		if !usable || n.Spec.Unschedulable {
			has := vector.FromList(n.Status.Allocatable)[gpu]
			total.Add(vector.Vector{gpu: min(has, w.used[n.Name])}.In(w.poolOf(n)), 1)
			continue
		}
		left := vector.FromList(n.Status.Allocatable)[gpu]
		for _, on := range w.foreign {
			if on == n.Name {
				left--
			}
		}
		total.Add(vector.Vector{gpu: max(0, left)}.In(w.poolOf(n)), 1)
	}
	return without(total)
}

func (w *world) poolsOf(pod *v1.Pod) []string {
	var names, named []string
	for _, name := range append(slices.Clone(w.pools), config.Pool{Name: "default"}) {
		for _, n := range w.nodes {
			fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n)
			if err == nil && fits && !n.Spec.Unschedulable && w.poolOf(n) == name.Name && tolerateAll(pod.Spec.Tolerations, hard(n)) {
				names = append(names, name.Name)
				break
			}
		}
	}
	if p := w.poolOf(&v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: pod.Spec.NodeSelector}}); len(w.pools) > 0 {
		named = []string{p}
	}
	switch {
	case len(w.pools) == 0:
		return []string{"default"}
	case len(names) > 0:
		return names
	}
	return named
}

// TestClusterIsWhatItWasTold: after any story the cluster equals what a look at everything finds.
func TestClusterIsWhatItWasTold(t *testing.T) {
	several := 0
	for seed := range uint64(90) {
		r := rand.New(rand.NewPCG(seed, 5))
		w := &world{Rand: r, nodes: map[string]*v1.Node{}, pods: map[types.UID]*v1.Pod{}, foreign: map[types.UID]string{}, used: map[string]int64{}}
		if seed%3 > 0 {
			w.pools = models("a", "b")
		}
		if seed%3 > 1 {
			w.pools[0].Tolerations = tolerating("gangs").Spec.Tolerations
		}
		c := mustNew(t, w.pools)
		classes := map[types.UID]*Class{}
		for step := range 120 {
			uid := types.UID(fmt.Sprint("p", r.IntN(12)))
			before := map[*Class][]string{}
			for _, class := range classes {
				before[class] = class.Pools()
			}
			var changed []*Class
			switch r.IntN(7) {
			case 0, 1:
				n := w.node()
				old := w.nodes[n.Name]
				w.nodes[n.Name] = n
				var recount bool
				recount, changed = c.SetNode(n)
				if want := old == nil || w.poolOf(old) != w.poolOf(n) || !old.Status.Allocatable[gpu].Equal(n.Status.Allocatable[gpu]); recount != want {
					t.Fatalf("seed %d, step %d: the pods on node %s count otherwise: %v, want %v", seed, step, n.Name, recount, want)
				}
			case 2:
				name := fmt.Sprint("n", r.IntN(8))
				delete(w.nodes, name)
				changed = c.DropNode(name)
			case 3:
				w.foreign[uid] = fmt.Sprint("n", r.IntN(8))
				c.SetForeign(uid, w.foreign[uid], vector.Vector{gpu: 1})
			case 4:
				delete(w.foreign, uid)
				c.DropForeign(uid)
			case 5:
				name, amount := fmt.Sprint("n", r.IntN(8)), r.Int64N(3)
				c.Use(name, vector.Vector{gpu: amount - w.used[name]}, 1)
				w.used[name] = amount
			case 6:
				if class := classes[uid]; class != nil {
					c.Leave(class)
					delete(classes, uid)
					delete(w.pods, uid)
				}
				if r.IntN(3) > 0 {
					w.pods[uid] = w.pod()
					classes[uid] = c.Enter(w.pods[uid])
				}
			}
			if diff := cmp.Diff(w.total(), without(c.Total())); diff != "" {
				t.Fatalf("seed %d, step %d: shared (-want +got):\n%s", seed, step, diff)
			}
			for uid, class := range classes {
				if diff := cmp.Diff(w.poolsOf(w.pods[uid]), class.Pools()); diff != "" {
					t.Fatalf("seed %d, step %d: pools of %v (-want +got):\n%s", seed, step, w.pods[uid].Spec, diff)
				}
				if !c.Is(w.pods[uid], class) {
					t.Fatalf("seed %d, step %d: a pod is not of its class", seed, step)
				}
				if list, known := before[class]; known && slices.Equal(list, class.Pools()) == slices.Contains(changed, class) {
					t.Fatalf("seed %d, step %d: pools %v and now %v; told: %v", seed, step, list, class.Pools(), slices.Contains(changed, class))
				}
				if len(class.Pools()) > 1 {
					several++
				}
			}
		}
	}
	if several < 2000 {
		t.Errorf("%d looks at pods that may use several pools tell little", several)
	}
}

// TestPinned: a pod that names its node costs a look at that, not at all nodes; nor does a node cost a look at all pods
// that name others.
func TestPinned(t *testing.T) {
	c := mustNew(t, models("a", "b"))
	for i := range 1000 {
		c.SetNode(nodeOf(fmt.Sprint("n", i), 8, map[string]string{"model": "a"}))
		c.Enter(pinned(tolerating(), fmt.Sprint("m", i)))
	}
	enter := func() {
		if class := c.Enter(pinned(tolerating(), "n7")); !slices.Equal(class.Pools(), []string{"a"}) {
			t.Errorf("it may use %v", class.Pools())
		} else {
			c.Leave(class)
		}
	}
	drop := func() {
		c.DropNode("n8")
		c.SetNode(nodeOf("n8", 8, map[string]string{"model": "b"}))
	}
	// Each look at a node takes some.
	if enters, drops := testing.AllocsPerRun(10, enter), testing.AllocsPerRun(10, drop); enters > 200 || drops > 200 {
		t.Errorf("%v allocations for a pod, %v for a node", enters, drops)
	}
}

// TestTolerates: the result is that of kube-scheduler.
func TestTolerates(t *testing.T) {
	of := v1.Taint{Key: "k", Value: "5", Effect: v1.TaintEffectNoSchedule}
	for sentence, c := range map[string]struct {
		t    v1.Toleration
		want bool
	}{
		"anything":         {v1.Toleration{Operator: v1.TolerationOpExists}, true},
		"the key":          {v1.Toleration{Key: "k", Operator: v1.TolerationOpExists}, true},
		"another key":      {v1.Toleration{Key: "l", Operator: v1.TolerationOpExists}, false},
		"another effect":   {v1.Toleration{Key: "k", Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute}, false},
		"the value":        {v1.Toleration{Key: "k", Value: "5"}, true},
		"another value":    {v1.Toleration{Key: "k", Operator: v1.TolerationOpEqual, Value: "6"}, false},
		"more than":        {v1.Toleration{Key: "k", Operator: v1.TolerationOpGt, Value: "4"}, true},
		"less than":        {v1.Toleration{Key: "k", Operator: v1.TolerationOpLt, Value: "4"}, false},
		"more than a word": {v1.Toleration{Key: "k", Operator: v1.TolerationOpGt, Value: "x"}, false},
	} {
		if got := tolerateAll([]v1.Toleration{c.t}, []v1.Taint{of}); got != c.want {
			t.Errorf("%s: %v", sentence, got)
		}
	}
}

// large returns 5,000 nodes with 1,000 kinds of pods, and with ten daemons on each node.
func large(b *testing.B) *Cluster {
	b.Helper()
	c, err := New(models("a", "b"))
	must.Succeed(b, err)
	for i := range 5000 {
		c.SetNode(nodeOf(fmt.Sprint("n", i), 8, map[string]string{"model": []string{"a", "b", "c"}[i%3], "zone": fmt.Sprint(i % 10)}))
	}
	for i := range 40000 {
		c.Enter(selecting(tolerating(fmt.Sprint("t", i%100)), "zone", fmt.Sprint(i%10)))
	}
	for i := range 50000 {
		c.Enter(daemon(i))
	}
	return c
}

// daemon returns a pod of one of ten daemons, each with tolerations of its own, on one of 5,000
// nodes.
func daemon(i int) *v1.Pod {
	return pinned(tolerating("", fmt.Sprint("d", i%10)), fmt.Sprint("n", i/10))
}

// BenchmarkEnter: a daemon comes to a node.
func BenchmarkEnter(b *testing.B) {
	c := large(b)
	for i := 0; b.Loop(); i++ {
		class := c.Enter(pinned(tolerating(), fmt.Sprint("n", i%5000)))
		c.Leave(class)
	}
}

// BenchmarkSetNode: a node changes its taints.
func BenchmarkSetNode(b *testing.B) {
	c := large(b)
	for i := 0; b.Loop(); i++ {
		n := nodeOf("n7", 8, map[string]string{"model": "b", "zone": "7"})
		if i%2 == 0 {
			n.Spec.Taints = []v1.Taint{taint("t7", v1.TaintEffectNoSchedule)}
		}
		c.SetNode(n)
	}
}

// TestCharge: a pod that names its node counts for at most what that has. Others count in full, also where the node
// that is kept for them is not known: it may be gone, or new.
func TestCharge(t *testing.T) {
	c, err := New(nil)
	must.Succeed(t, err)
	c.SetNode(nodeOf("n", 2, nil))
	class := c.Enter(&v1.Pod{})
	for sentence, one := range map[string]struct {
		node  string
		named bool
		want  int64
	}{
		"it waits":                                {"", false, 5},
		"a node is kept for it":                   {"n", false, 5},
		"one is kept that is not known":           {"gone", false, 5},
		"it names its node":                       {"n", true, 2},
		"it names one, and there is no such node": {"gone", true, 0},
	} {
		if charged, _ := c.Charge(vector.Vector{gpu: 5}, class, one.node, one.named); charged[gpu] != one.want {
			t.Errorf("%s: %d count, want %d", sentence, charged[gpu], one.want)
		}
	}
}
