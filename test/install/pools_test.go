package install

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

const (
	ours = "lockstep-scheduler"
	// places is how many pods of the test fit on a node, beside one of the DaemonSet; poolNodes is how many nodes a pool
	// has.
	places, poolNodes = 25, 20
)

// trainingPool is the pool of manifests/pools as values, and poolTaint its taint.
var (
	trainingPool = []string{
		"pools[0].name=training", "pools[0].nodeSelector.pool=training",
		"pools[0].taint.key=lockstep.dev/gangs", "pools[0].taint.effect=NoSchedule",
	}
	poolTaint  = v1.Taint{Key: "lockstep.dev/gangs", Effect: v1.TaintEffectNoSchedule}
	named      = v1.Toleration{Key: "lockstep.dev/gangs", Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule}
	everyTaint = v1.Toleration{Operator: v1.TolerationOpExists}
)

// TestChartWritesPools: the policies of the chart are those of manifests/pools, with what the values and the
// configuration say.
func TestChartWritesPools(t *testing.T) {
	t.Parallel()
	policies := func(text string) map[string]map[string]any {
		all := plain(t, text)
		for key := range all {
			if !strings.Contains(key, "pools.scheduling") {
				delete(all, key)
			}
		}
		return all
	}
	if diff := cmp.Diff(plain(t, kustomize(t, "pools")), policies(template(t, system, trainingPool...))); diff != "" {
		t.Errorf("policies (-kustomize +chart):\n%s", diff)
	}
	two := fmt.Sprint(policies(template(t, "gangs", append(slices.Clip(trainingPool), "pools[1].name=batch", "pools[1].nodeSelector.example\\.com/for=batch",
		"pools[1].taint.key=example.com/batch", "pools[1].taint.value=yes", "pools[1].taint.effect=NoExecute")...)))
	if want := "{'name': 'batch', 'label': 'example.com/for', 'labelValue': 'batch', 'key': 'example.com/batch', 'value': 'yes', 'effect': 'NoExecute'}"; strings.Count(two, want) != 2 {
		t.Errorf("two pools: no %s in each of the policies %s", want, two)
	}
	flags := append(set(trainingPool), "--kube-version", "1.35.0")
	if old := policies(mustRun(t, "helm", append([]string{"template", "lockstep", chart()}, flags...)...)); len(old) != 2 {
		t.Errorf("policies for Kubernetes 1.35: %d, want those that it serves, 2", len(old))
	}
	for _, profile := range configured(t, trainingPool...).Profiles {
		i := slices.IndexFunc(profile.PluginConfig, func(c schedconfig.PluginConfig) bool { return c.Name == "NodeAffinity" })
		added := profile.PluginConfig[i].Args.(*schedconfig.NodeAffinityArgs).AddedAffinity
		if want := text(t, &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{
			{MatchExpressions: []v1.NodeSelectorRequirement{expression("pool", v1.NodeSelectorOpIn, "training")}},
		}}}); text(t, added) != want {
			t.Errorf("profile %s: added affinity %s, want %s", profile.SchedulerName, text(t, added), want)
		}
	}
}

var kubernetes = flag.String("kubernetes", "", "test pools on an API server of this version, such as 1.36")

// TestPools runs the stock scheduler and ours as the chart configures it with a pool. There is exactly room in the pool
// for the pods that go there.
func TestPools(t *testing.T) {
	t.Parallel()
	if err := localcluster.BuildCommands(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := localcluster.BuildTools(t.Context(), t.Output(), "helm", "kube-scheduler"); err != nil {
		t.Fatal(err)
	}
	size := v1.ResourceList{v1.ResourceCPU: resource.MustParse(fmt.Sprint(places + 1))}
	c := localcluster.Run(t, localcluster.Options{Kubernetes: *kubernetes, Nodes: []localcluster.NodePool{
		{Count: poolNodes, NamePrefix: "pool-", Labels: map[string]string{"pool": "training"}, Taints: []v1.Taint{poolTaint}, Allocatable: size},
		{Count: poolNodes + 1, NamePrefix: "other-", Allocatable: size}, // one more, for the pods of the release
	}})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // for machines that are busy
	defer cancel()
	p := &pooled{Cluster: c, t: t, ctx: ctx, refusesOnly: *kubernetes == "1.35"}
	// It was there before, and waits.
	before := p.create(pod("before", waits, tolerates(named)))
	p.install()
	if !p.refusesOnly {
		t.Run("pods that are given a place", p.testGiven)
	}
	t.Run("pods that are refused", p.testRefused)
	t.Run("pods that were there before", func(t *testing.T) {
		if err := p.patch(before, `{"metadata": {"labels": {"any": "change"}}}`); err != nil {
			t.Error(err)
		}
	})
	t.Run("1,000 pods", p.testThousand)
}

// stockConfig gives the stock scheduler the client limits that ours has.
const stockConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  qps: 2000
  burst: 4000
`

// pooled is a cluster with a pool.
type pooled struct {
	*localcluster.Cluster
	t   *testing.T
	ctx context.Context
	// refusesOnly: the API server has no MutatingAdmissionPolicies.
	refusesOnly bool
}

// install installs the chart, starts both schedulers, and waits for the policies and the DaemonSet.
func (p *pooled) install() {
	p.t.Helper()
	if _, err := p.Shell(p.ctx, "helm install lockstep manifests/chart --namespace kube-system '"+strings.Join(set(trainingPool), "' '")+"'"); err != nil {
		p.t.Fatal(err)
	}
	mounted, err := p.Clientset().CoreV1().ConfigMaps(system).Get(p.ctx, "lockstep-scheduler-config", metav1.GetOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	account, err := p.KubeconfigFor(ours)
	if err != nil {
		p.t.Fatal(err)
	}
	stock, err := localcluster.Binary("kube-scheduler")
	if err != nil {
		p.t.Fatal(err)
	}
	p.start(filepath.Join(root, "bin", ours), account, mounted.Data["config.yaml"])
	var emulated []string // ours asks the API server for its version
	if *kubernetes != "" {
		emulated = append(emulated, "--emulated-version="+*kubernetes)
	}
	p.start(stock, p.Kubeconfig(), stockConfig, emulated...)
	await.Until(p.t, "the policies hold", func() bool {
		given, err := p.tried(pod("probe", tolerates(named)))
		if p.refusesOnly {
			return err != nil
		}
		_, refused := p.tried(pod("probe", tolerates(named), scheduler("other")))
		return err == nil && given.Spec.SchedulerName == ours && refused != nil
	})
	if _, err := p.Shell(p.ctx, `kubectl apply -f - <<END
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      tolerations: [{operator: Exists}]
      containers: [{name: main, image: none, resources: {requests: {cpu: 500m}}}]
END`); err != nil {
		p.t.Fatal(err)
	}
	await.NoError(p.t, "the DaemonSet is on all nodes", func() error {
		return p.bound("app=agent", 2*poolNodes+1)
	})
}

// start starts a scheduler.
func (p *pooled) start(binary, kubeconfig, config string, args ...string) {
	p.t.Helper()
	port, err := localcluster.FreePort()
	if err != nil {
		p.t.Fatal(err)
	}
	name := filepath.Base(binary)
	file := filepath.Join(p.Dir(), name+"-config.yaml")
	config = strings.Replace(config, "clientConnection:\n", "clientConnection:\n  kubeconfig: "+kubeconfig+"\n", 1)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		p.t.Fatal(err)
	}
	process, err := p.Start(name, binary, append(args,
		"--config="+file, "--leader-elect=false", "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--authorization-always-allow-paths=/readyz",
	), "")
	if err == nil {
		err = process.WaitReady(p.ctx, fmt.Sprintf("https://127.0.0.1:%d/readyz", port))
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// option is something that a pod has.
type option func(*v1.Pod)

func tolerates(list ...v1.Toleration) option {
	return func(pod *v1.Pod) { pod.Spec.Tolerations = append(pod.Spec.Tolerations, list...) }
}

func scheduler(name string) option { return func(pod *v1.Pod) { pod.Spec.SchedulerName = name } }

func on(node string) option { return func(pod *v1.Pod) { pod.Spec.NodeName = node } }

func in(namespace string) option { return func(pod *v1.Pod) { pod.Namespace = namespace } }

func selects(key, value string) option {
	return func(pod *v1.Pod) { pod.Spec.NodeSelector = map[string]string{key: value} }
}

// waits keeps a pod from all nodes.
func waits(pod *v1.Pod) { pod.Spec.NodeSelector = map[string]string{"no-node": "has-this"} }

// requires sets what the required node affinity of a pod is.
func requires(terms ...v1.NodeSelectorTerm) option {
	return func(pod *v1.Pod) {
		pod.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms},
		}}
	}
}

func owned(kind string) option {
	return func(pod *v1.Pod) {
		pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "owner", UID: "owner", Controller: new(true)}}
	}
}

func ofLockstep(pod *v1.Pod) { pod.Labels["app.kubernetes.io/part-of"] = "lockstep" }

func gpuTest(pod *v1.Pod) { pod.Labels["app"] = "nvidia-cuda-validator" }

func static(pod *v1.Pod) {
	pod.Annotations = map[string]string{v1.MirrorPodAnnotationKey: "hash"}
}

// pod returns one that asks for one CPU.
func pod(name string, options ...option) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault, Labels: map[string]string{"test": "pools"}},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "main", Image: "none", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1")}},
		}}},
	}
	for _, o := range options {
		o(p)
	}
	return p
}

// create creates a pod.
func (p *pooled) create(pod *v1.Pod) *v1.Pod {
	p.t.Helper()
	created, err := p.Clientset().CoreV1().Pods(pod.Namespace).Create(p.ctx, pod, metav1.CreateOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	return created
}

// tried returns what a pod would be if it were created.
func (p *pooled) tried(pod *v1.Pod) (*v1.Pod, error) {
	return p.Clientset().CoreV1().Pods(pod.Namespace).Create(p.ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
}

func (p *pooled) patch(pod *v1.Pod, patch string) error {
	_, err := p.Clientset().CoreV1().Pods(pod.Namespace).Patch(p.ctx, pod.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// bound returns an error unless so many pods with a label have nodes.
func (p *pooled) bound(label string, want int) error {
	pods, err := p.Clientset().CoreV1().Pods("").List(p.ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return err
	}
	got := 0
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName != "" {
			got++
		}
	}
	if got != want {
		return fmt.Errorf("%d of %d pods have a node", got, want)
	}
	return nil
}

func expression(key string, operator v1.NodeSelectorOperator, values ...string) v1.NodeSelectorRequirement {
	return v1.NodeSelectorRequirement{Key: key, Operator: operator, Values: values}
}

func (p *pooled) testGiven(t *testing.T) {
	const other = v1.DefaultSchedulerName
	here, away := map[string]string{"pool": "training"}, expression("pool", v1.NodeSelectorOpNotIn, "training")
	zone := expression("zone", v1.NodeSelectorOpIn, "a")
	byName := []v1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{"other-0"}}}
	terms := func(terms ...v1.NodeSelectorTerm) []v1.NodeSelectorTerm { return terms }
	that := func(list ...v1.NodeSelectorRequirement) v1.NodeSelectorTerm {
		return v1.NodeSelectorTerm{MatchExpressions: list}
	}
	for name, tc := range map[string]struct {
		options   []option
		scheduler string
		selector  map[string]string
		terms     []v1.NodeSelectorTerm
	}{
		"nothing to do with the pool":       {nil, other, nil, nil},
		"tolerates the taint":               {[]option{tolerates(named)}, ours, here, nil},
		"by its value":                      {[]option{tolerates(v1.Toleration{Key: named.Key, Operator: v1.TolerationOpEqual})}, ours, here, nil},
		"another value":                     {[]option{tolerates(v1.Toleration{Key: named.Key, Value: "x"})}, other, nil, nil},
		"another effect":                    {[]option{tolerates(v1.Toleration{Key: named.Key, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute})}, other, nil, nil},
		"of GKE's scheduler":                {[]option{tolerates(named), scheduler("gke.io/optimize-utilization-scheduler")}, ours, here, nil},
		"names ours":                        {[]option{tolerates(named), scheduler(ours)}, ours, here, nil},
		"names ours, tolerates everything":  {[]option{tolerates(everyTaint), scheduler(ours)}, ours, here, nil},
		"names ours, tolerates nothing":     {[]option{scheduler(ours)}, ours, nil, nil},
		"names our other name":              {[]option{tolerates(named), scheduler("scheduler-plugins-scheduler")}, "scheduler-plugins-scheduler", here, nil},
		"has a selector":                    {[]option{tolerates(named), selects("zone", "a")}, ours, map[string]string{"pool": "training", "zone": "a"}, nil},
		"selects other nodes":               {[]option{tolerates(named), selects("pool", "x")}, other, map[string]string{"pool": "x"}, nil},
		"requires other nodes":              {[]option{tolerates(named), requires(that(away))}, other, nil, terms(that(away))},
		"may go elsewhere":                  {[]option{tolerates(named), requires(that(away), that(zone))}, ours, here, terms(that(away), that(zone))},
		"tolerates everything":              {[]option{tolerates(everyTaint)}, other, nil, terms(that(away))},
		"everything of one effect":          {[]option{tolerates(v1.Toleration{Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoSchedule})}, other, nil, terms(that(away))},
		"everything, and selects the pool":  {[]option{tolerates(everyTaint), selects("pool", "training")}, ours, here, nil},
		"everything, of another scheduler":  {[]option{tolerates(everyTaint), scheduler("x")}, "x", nil, terms(that(away))},
		"everything, and requires nodes":    {[]option{tolerates(everyTaint), requires(that(zone), v1.NodeSelectorTerm{MatchFields: byName})}, other, nil, terms(that(zone, away), v1.NodeSelectorTerm{MatchFields: byName, MatchExpressions: []v1.NodeSelectorRequirement{away}})},
		"of the system":                     {[]option{tolerates(named), in(system)}, other, nil, terms(that(away))},
		"of Lockstep":                       {[]option{tolerates(named), ofLockstep}, other, nil, terms(that(away))},
		"of a DaemonSet":                    {[]option{tolerates(everyTaint), owned("DaemonSet")}, other, nil, nil},
		"of a ReplicaSet":                   {[]option{tolerates(everyTaint), owned("ReplicaSet")}, other, nil, terms(that(away))},
		"static":                            {[]option{tolerates(everyTaint), static, on("pool-0")}, other, nil, nil},
		"tests GPUs for GPU Operator":       {[]option{tolerates(named), gpuTest, on("pool-0")}, other, nil, nil},
		"names its node":                    {[]option{on("other-0")}, other, nil, terms(that(away))},
		"names its node, in the system":     {[]option{on("pool-0"), in(system)}, other, nil, nil},
		"names its node, ours":              {[]option{on("pool-0"), scheduler(ours)}, ours, nil, terms(that(away))},
		"names its node, selects elsewhere": {[]option{on("other-0"), selects("pool", "x"), tolerates(named)}, other, map[string]string{"pool": "x"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := p.tried(pod("tried", tc.options...))
			if err != nil {
				t.Fatal(err)
			}
			var required []v1.NodeSelectorTerm
			if got.Spec.Affinity != nil {
				required = got.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			}
			if got.Spec.SchedulerName != tc.scheduler || text(t, got.Spec.NodeSelector) != text(t, tc.selector) || text(t, required) != text(t, tc.terms) {
				t.Errorf("got scheduler %s, selector %s, affinity %s; want %s, %s, %s", got.Spec.SchedulerName,
					text(t, got.Spec.NodeSelector), text(t, required), tc.scheduler, text(t, tc.selector), text(t, tc.terms))
			}
		})
	}
}

func text(t *testing.T, value any) string {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func (p *pooled) testRefused(t *testing.T) {
	const byTaint, byNode = "the pod tolerates the taint lockstep.dev/gangs of the pool training, whose pods are placed by the scheduler lockstep-scheduler only",
		"nodes with the label pool=training (pool training) get their pods from the scheduler lockstep-scheduler only"
	for name, tc := range map[string]struct {
		options []option
		want    string
	}{
		"of another scheduler":                   {[]option{tolerates(named), scheduler("other")}, byTaint},
		"everything, and selects the pool":       {[]option{tolerates(everyTaint), scheduler("other"), selects("pool", "training")}, byTaint},
		"names its node, and tolerates":          {[]option{tolerates(named), on("pool-0")}, byNode},
		"names its node, ours":                   {[]option{tolerates(everyTaint), on("pool-0"), scheduler(ours)}, byNode},
		"names its node, and selects the pool":   {[]option{tolerates(everyTaint), on("pool-0"), selects("pool", "training")}, byNode},
		"names its node, is of no DaemonSet":     {[]option{tolerates(named), on("pool-0"), owned("ReplicaSet")}, byNode},
		"of another scheduler, may go elsewhere": {[]option{tolerates(named), scheduler("other"), requires(v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{expression("pool", v1.NodeSelectorOpExists)}})}, byTaint},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := p.tried(pod("tried", tc.options...)); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q in it", err, tc.want)
			}
		})
	}
	t.Run("given a toleration later", func(t *testing.T) {
		waiting := p.create(pod("waiting", waits))
		for _, toleration := range []v1.Toleration{named, everyTaint} {
			err := p.patch(waiting, fmt.Sprintf(`{"spec": {"tolerations": %s}}`, text(t, append(slices.Clip(waiting.Spec.Tolerations), toleration))))
			if err == nil || !strings.Contains(err.Error(), byTaint) {
				t.Errorf("error %v, want %q in it", err, byTaint)
			}
		}
	})
}

// testThousand creates 500 pods for the pool, in gangs, and 500 for other nodes, some of which tolerate everything.
func (p *pooled) testThousand(t *testing.T) {
	group, ctx := errgroup.WithContext(p.ctx)
	group.SetLimit(16)
	begin := time.Now()
	for i := range poolNodes * places {
		member := pod(fmt.Sprintf("member-%03d", i), tolerates(named))
		member.Annotations = map[string]string{
			"gang.scheduling.koordinator.sh/name":          fmt.Sprintf("gang-%02d", i/10),
			"gang.scheduling.koordinator.sh/min-available": "10",
		}
		other := pod(fmt.Sprintf("other-%03d", i))
		if p.refusesOnly {
			member.Spec.SchedulerName = ours
		} else if i%5 == 0 {
			other.Spec.Tolerations = []v1.Toleration{everyTaint}
		}
		for _, one := range []*v1.Pod{member, other} {
			one.Labels["of"] = "thousand"
			group.Go(func() error {
				_, err := p.Clientset().CoreV1().Pods(one.Namespace).Create(ctx, one, metav1.CreateOptions{})
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("1,000 pods were created in %s", time.Since(begin).Round(time.Millisecond))
	lost := p.create(pod("lost", scheduler(ours))) // ours, and tolerates nothing
	await.NoError(t, "all have a node", func() error { return p.bound("of=thousand", 2*poolNodes*places) })
	t.Logf("and bound in %s", time.Since(begin).Round(time.Millisecond))
	pods, err := p.Clientset().CoreV1().Pods("").List(p.ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	used, count := map[string]*resource.Quantity{}, map[string]int{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		node := pod.Spec.NodeName
		if node == "" {
			continue
		}
		if used[node] == nil {
			used[node] = &resource.Quantity{}
		}
		used[node].Add(*pod.Spec.Containers[0].Resources.Requests.Cpu())
		inPool := strings.HasPrefix(node, "pool-")
		if pod.Labels["app"] != "agent" && inPool != (pod.Spec.SchedulerName == ours) {
			t.Errorf("pod %s/%s of %s is on %s", pod.Namespace, pod.Name, pod.Spec.SchedulerName, node)
		}
		if pod.Labels["of"] == "thousand" {
			count[pod.Spec.SchedulerName]++
		}
	}
	for node, cpu := range used {
		if cpu.CmpInt64(places+1) > 0 {
			t.Errorf("node %s has %d CPUs, its pods ask for %s", node, places+1, cpu)
		}
	}
	if count[ours] != poolNodes*places || count[v1.DefaultSchedulerName] != poolNodes*places {
		t.Errorf("pods by scheduler: %v, want %d of each", count, poolNodes*places)
	}
	await.NoError(t, "the pod that cannot go anywhere says so", func() error {
		pod, err := p.Clientset().CoreV1().Pods(lost.Namespace).Get(p.ctx, lost.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == v1.PodScheduled && strings.Contains(condition.Message, "taint") {
				t.Log(condition.Message)
				return nil
			}
		}
		return fmt.Errorf("node %q, conditions %v", pod.Spec.NodeName, pod.Status.Conditions)
	})
}
