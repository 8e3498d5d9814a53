package planner

import (
	"context"
	"fmt"
	"math/rand/v2"
	goruntime "runtime"
	"slices"
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/ledger"
	"github.com/lockstep-sh/lockstep/pkg/planning/extensionpoints"
	"github.com/lockstep-sh/lockstep/pkg/planning/podclass"
	"github.com/lockstep-sh/lockstep/test/helpers/idle"
	"github.com/lockstep-sh/lockstep/test/helpers/must"
)

// reader is an external plugin that may read the label "id" of pods.
type reader struct{}

func (reader) Name() string { return "Reader" }

func (reader) Filter(context.Context, fwk.CycleState, *v1.Pod, fwk.NodeInfo) *fwk.Status { return nil }

// signer is a reader that says what it reads.
type signer struct {
	reader
	key     string
	refuses bool
}

func (s signer) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	if s.refuses {
		return nil, fwk.NewStatus(fwk.Unschedulable, "it depends")
	}
	return []fwk.SignFragment{{Key: s.key, Value: pod.Labels[s.key]}}, nil
}

// cluster is what a planner of a test plans on: nodes of two zones.
type cluster struct {
	pods     []*v1.Pod
	objects  []runtime.Object
	plugin   fwk.Plugin
	unscored []string
	defaults []v1.TopologySpreadConstraint
}

func (c cluster) planner(t *testing.T, gpus ...int) *Planner {
	t.Helper()
	var nodes []*v1.Node
	for i, amount := range gpus {
		name := fmt.Sprint("n", i)
		nodes = append(nodes, st.MakeNode().Name(name).
			Label(v1.LabelHostname, name).Label(v1.LabelTopologyZone, fmt.Sprint("z", i%2)).
			Capacity(map[v1.ResourceName]string{gpu: fmt.Sprint(amount), v1.ResourcePods: "110"}).Obj())
	}
	plugins, registry := extensionpoints.New(), frameworkruntime.Registry{}
	if c.plugin != nil {
		registry[c.plugin.Name()] = plugins.WatchExternal(func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
			return c.plugin, nil
		})
	}
	s := idle.New(t, idle.Options{
		Plugins: registry, Snapshot: cache.NewSnapshot(c.pods, nodes), Objects: c.objects, Configure: c.configure,
	})
	s.Start()
	return New(s.Framework, ledger.New(), plugins)
}

func (c cluster) configure(p *schedconfig.KubeSchedulerProfile) {
	for _, name := range c.unscored {
		p.Plugins.Score.Disabled = append(p.Plugins.Score.Disabled, schedconfig.Plugin{Name: name})
	}
	for i := range p.PluginConfig {
		if args, ok := p.PluginConfig[i].Args.(*schedconfig.PodTopologySpreadArgs); ok && c.defaults != nil {
			args.DefaultingType, args.DefaultConstraints = schedconfig.ListDefaulting, c.defaults
		}
	}
}

// classesOf returns the class of each member, as a plan would have them.
func classesOf(t *testing.T, p *Planner, pods []*v1.Pod) (classes []int) {
	t.Helper()
	group, err := p.groupingFor(t.Context(), attemptOf(pods))
	must.Succeed(t, err)
	for _, pod := range pods {
		classes = append(classes, mustAdd(t, group, pod))
	}
	return classes
}

// running returns a pod on a node.
func running(name string) *st.PodWrapper {
	return st.MakePod().Namespace("ns").Name(name).UID(name).Node("n0")
}

// termOn returns a term that selects pods by their label "id".
func termOn(ids ...string) v1.PodAffinityTerm {
	return v1.PodAffinityTerm{TopologyKey: v1.LabelTopologyZone, LabelSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "id", Operator: metav1.LabelSelectorOpIn, Values: ids}},
	}}
}

func without(terms ...v1.PodAffinityTerm) *v1.Affinity {
	return &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
}

func preferring(with bool, term v1.PodAffinityTerm) *v1.Affinity {
	list := []v1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: term}}
	if with {
		return &v1.Affinity{PodAffinity: &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: list}}
	}
	return &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: list}}
}

// TestOnlyWhatIsReadMakesClasses: three members have the ids 0, 1 and 2 as a label of their own.
func TestOnlyWhatIsReadMakesClasses(t *testing.T) {
	each := func(change func(i int, pod *v1.Pod)) func([]*v1.Pod) {
		return func(pods []*v1.Pod) {
			for i, pod := range pods {
				change(i, pod)
			}
		}
	}
	affine := func(affinity *v1.Affinity) func([]*v1.Pod) {
		return each(func(_ int, pod *v1.Pod) { pod.Spec.Affinity = affinity })
	}
	spread := func(constraint v1.TopologySpreadConstraint) func([]*v1.Pod) {
		constraint.MaxSkew, constraint.TopologyKey, constraint.WhenUnsatisfiable = 1, v1.LabelTopologyZone, v1.ScheduleAnyway
		return each(func(_ int, pod *v1.Pod) {
			pod.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{constraint}
		})
	}
	beside := func(affinity *v1.Affinity) cluster {
		pod := running("other").Obj()
		pod.Spec.Affinity = affinity
		return cluster{pods: []*v1.Pod{pod}}
	}
	elsewhere := func(change func(*v1.PodAffinityTerm)) cluster {
		term := termOn("0")
		change(&term)
		c := beside(without(term))
		c.pods[0].Namespace = "elsewhere"
		return c
	}
	service := []runtime.Object{&v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"}, Spec: v1.ServiceSpec{Selector: map[string]string{"id": "0"}},
	}}
	byDefault := func(action v1.UnsatisfiableConstraintAction) []v1.TopologySpreadConstraint {
		return []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: action}}
	}
	owned := each(func(i int, pod *v1.Pod) {
		name := []string{"a", "b", "b"}[i]
		pod.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: types.UID(name), Controller: new(true),
		}}
	})
	numbered := func(prefix string, set func(*v1.Pod, string)) func([]*v1.Pod) {
		return each(func(i int, pod *v1.Pod) { set(pod, fmt.Sprint(prefix, i)) })
	}
	images := numbered("i", func(pod *v1.Pod, s string) { pod.Spec.Containers[0].Image = s })
	near := &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{termOn("0")}}}
	counted := v1.TopologySpreadConstraint{LabelSelector: &metav1.LabelSelector{}, MatchLabelKeys: []string{"id"}}
	one, first, all := []int{0, 0, 0}, []int{0, 1, 1}, []int{0, 1, 2}
	for sentence, c := range map[string]struct {
		cluster
		members func([]*v1.Pod)
		want    []int
	}{
		"nothing selects by the label": {want: one},

		"a required term of the members selects one of them":   {members: affine(without(termOn("0"))), want: first},
		"a preferred term does":                                {members: affine(preferring(false, termOn("0"))), want: first},
		"a preferred affinity does":                            {members: affine(preferring(true, termOn("0"))), want: first},
		"a term selects all of them":                           {members: affine(without(termOn("0", "1", "2"))), want: one},
		"a term selects none of them":                          {members: affine(without(termOn("7"))), want: one},
		"a term of another member selects one of them":         {members: func(pods []*v1.Pod) { pods[0].Spec.Affinity = without(termOn("2")) }, want: all},
		"a spread constraint selects one of them":              {members: spread(v1.TopologySpreadConstraint{LabelSelector: termOn("0").LabelSelector}), want: first},
		"a spread constraint counts those with the same label": {members: spread(counted), want: all},

		"a pod on the snapshot keeps one of them away":           {cluster: beside(without(termOn("0"))), want: first},
		"pods on the snapshot keep two away, for two reasons":    {cluster: beside(without(termOn("0"), termOn("1"))), want: all},
		"a pod on the snapshot keeps all of them away":           {cluster: beside(without(termOn("0", "1", "2"))), want: one},
		"a pod on the snapshot keeps others away":                {cluster: beside(without(termOn("7"))), want: one},
		"a pod on the snapshot would have one of them elsewhere": {cluster: beside(preferring(false, termOn("0"))), want: first},
		"a pod on the snapshot would have one of them near":      {cluster: beside(preferring(true, termOn("0"))), want: first},
		"a pod on the snapshot has to be near one of them":       {cluster: beside(near), want: first},
		"a pod keeps pods of its own, other namespace away":      {cluster: elsewhere(func(*v1.PodAffinityTerm) {}), want: one},
		"a pod of another namespace names theirs":                {cluster: elsewhere(func(term *v1.PodAffinityTerm) { term.Namespaces = []string{"ns"} }), want: first},
		"a pod of another namespace selects namespaces":          {cluster: elsewhere(func(term *v1.PodAffinityTerm) { term.NamespaceSelector = &metav1.LabelSelector{} }), want: first},

		"a Service selects one, and pods of Services are spread if possible": {cluster: cluster{objects: service}, want: one},
		"a Service selects one, and pods are spread if possible":             {cluster: cluster{objects: service, defaults: byDefault(v1.ScheduleAnyway)}, want: one},
		"a Service selects one, and pods have to be spread":                  {cluster: cluster{objects: service, defaults: byDefault(v1.DoNotSchedule)}, want: first},
		"they have two owners, whose pods are spread if possible":            {members: owned, want: one},
		"they have two owners, whose pods have to be spread":                 {cluster: cluster{defaults: byDefault(v1.DoNotSchedule)}, members: owned, want: first},

		"an external plugin may read any label":            {cluster: cluster{plugin: reader{}}, want: all},
		"an external plugin signs the label":               {cluster: cluster{plugin: signer{key: "id"}}, want: all},
		"an external plugin signs another label":           {cluster: cluster{plugin: signer{key: "other"}}, want: one},
		"an external plugin does not sign what they share": {cluster: cluster{plugin: signer{refuses: true}}, want: all},

		"they have roles":                     {members: func(pods []*v1.Pod) { pods[0].Labels[v1alpha1.RoleLabel] = "leader" }, want: first},
		"they are in queues":                  {members: func(pods []*v1.Pod) { pods[0].Labels[v1alpha1.QueueLabel] = "a" }, want: first},
		"they have annotations":               {members: numbered("a", func(pod *v1.Pod, s string) { pod.Annotations = map[string]string{"id": s} }), want: one},
		"they have names of priority classes": {members: numbered("p", func(pod *v1.Pod, s string) { pod.Spec.PriorityClassName = s }), want: one},
		"they have names of containers":       {members: numbered("c", func(pod *v1.Pod, s string) { pod.Spec.Containers[0].Name = s }), want: one},
		"they have environments": {members: numbered("e", func(pod *v1.Pod, s string) {
			pod.Spec.Containers[0].Env = slices.Repeat([]v1.EnvVar{{Name: s}}, len(pod.Name))
		}), want: one},
		"they have images":                       {members: images, want: all},
		"they have images, which nothing scores": {cluster: cluster{unscored: []string{names.ImageLocality}}, members: images, want: one},
		"they have volumes of other names": {members: numbered("v", func(pod *v1.Pod, s string) {
			pod.Spec.Volumes = []v1.Volume{{Name: s, VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{Path: s}}}}
		}), want: one},
		"they have disks": {members: numbered("d", func(pod *v1.Pod, s string) {
			pod.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{RBD: &v1.RBDVolumeSource{RBDImage: s}}}}
		}), want: all},
	} {
		t.Run(sentence, func(t *testing.T) {
			var pods []*v1.Pod
			for i := range 3 {
				name := fmt.Sprint("m", i)
				pods = append(pods, st.MakePod().Namespace("ns").Name(name).UID(name).
					Label("id", fmt.Sprint(i)).Label("app", "train").Container("image").Obj())
			}
			if c.members != nil {
				c.members(pods)
			}
			if classes := classesOf(t, c.planner(t, 8), pods); !slices.Equal(classes, c.want) {
				t.Errorf("their classes are %v, want %v", classes, c.want)
			}
		})
	}
}

// TestClassesFitLikePods: whether a gang fits does not depend on whether its members are planned by class or each
// as a class of its own.
func TestClassesFitLikePods(t *testing.T) {
	fit, fewer := 0, 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 0))
		ids := func() (list []string) {
			for i := range 4 {
				if rng.IntN(2) == 0 {
					list = append(list, fmt.Sprint(i))
				}
			}
			return append(list, "9")
		}
		term := func() v1.PodAffinityTerm {
			term := termOn(ids()...)
			term.TopologyKey = []string{v1.LabelHostname, v1.LabelTopologyZone}[rng.IntN(2)]
			return term
		}
		var c cluster
		for i := range rng.IntN(5) {
			pod := running(fmt.Sprint("other", i)).Node(fmt.Sprint("n", rng.IntN(4))).Obj()
			pod.Spec.Affinity = without(term())
			c.pods = append(c.pods, pod)
		}
		var affinity *v1.Affinity
		if seed%3 == 0 {
			affinity = without(term())
		}
		var pods []*v1.Pod
		for i := range 1 + rng.IntN(4) {
			name := fmt.Sprint("m", i)
			pod := st.MakePod().Namespace("ns").Name(name).UID(name).SchedulerName(v1.DefaultSchedulerName).
				Label("id", fmt.Sprint(i)).Req(map[v1.ResourceName]string{gpu: "1"}).Obj()
			pod.Spec.Affinity = affinity
			pods = append(pods, pod)
		}
		p := c.planner(t, rng.IntN(3), rng.IntN(3), rng.IntN(3), rng.IntN(3))
		plan := func() bool {
			plan, err := p.Plan(t.Context(), attemptOf(pods), nil)
			must.Succeed(t, err)
			return plan.Complete
		}
		classes := classesOf(t, p, pods)
		fits := plan()
		p.labels = podclass.NewLabelReader(p.fw, nil, true)
		if apart := classesOf(t, p, pods); slices.Max(apart) != len(pods)-1 {
			t.Fatalf("the classes of pods that are planned one by one are %v", apart)
		}
		if one := plan(); one != fits {
			t.Errorf("seed %d: by classes %v the gang fits: %t; one by one: %t", seed, classes, fits, one)
		}
		if fits {
			fit++
		}
		if slices.Max(classes) < len(pods)-1 {
			fewer++
		}
	}
	if fit < 10 || fit > 50 || fewer < 20 {
		t.Errorf("of 60 gangs %d fit and %d have fewer classes than pods: the test finds out too little", fit, fewer)
	}
}

// TestCostOfLabelsOfTheirOwn: a label of its own on each member costs no more than a fifth of a plan.
func TestCostOfLabelsOfTheirOwn(t *testing.T) {
	const members, most = 300, 1.2
	e := &effort{}
	plugins := frameworkruntime.Registry{e.Name(): func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return e, nil }}
	e.Framework = deviceScheduler(t, plugins, make([]int, 200))
	p := New(e, ledger.New(), extensionpoints.New())
	cost := func(label func(i int) string) (filtered int64, bytes float64) {
		var pods []*v1.Pod
		for i := range members {
			name := fmt.Sprint("m", i)
			pods = append(pods, st.MakePod().Namespace("ns").Name(name).UID(name).SchedulerName(v1.DefaultSchedulerName).
				Label("app", "train").Label("spark-exec-id", label(i)).Req(map[v1.ResourceName]string{v1.ResourceCPU: "8"}).Obj())
		}
		var before, after goruntime.MemStats
		e.filtered.Store(0)
		p.start = 0
		goruntime.ReadMemStats(&before)
		wantPlan(t, p, attemptOf(pods), true)
		goruntime.ReadMemStats(&after)
		return e.filtered.Load(), float64(after.TotalAlloc - before.TotalAlloc)
	}
	cost(func(int) string { return "1" }) // what is made once is made
	filtered, bytes := cost(func(int) string { return "1" })
	filteredApart, bytesApart := cost(strconv.Itoa)
	if filteredApart != filtered || bytesApart > most*bytes {
		t.Errorf("with labels of their own filters are asked %d times, and %.0f bytes are allocated; want %d times, and at most %.1f times the %.0f bytes with one label",
			filteredApart, bytesApart, filtered, most, bytes)
	}
}
