package badinput_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// pod returns a pod; its spec has what change has instead.
func pod(want string, annotations, labels map[string]string, change values) sample {
	spec := podSpec()
	maps.Copy(spec, change)
	return sample{apiVersion: "v1", kind: "Pod", annotations: annotations, labels: labels, spec: spec, want: want}
}

// member returns a member of a gang of two, of which there is no other.
func member(name, key, value, want string) sample {
	says := map[string]string{v1alpha1.GangNameAnnotation: name, v1alpha1.MinAvailableAnnotation: "2"}
	says[key] = value
	return pod(want, says, nil, nil)
}

// ownedPods are pods that ask to be in the gang of an owner that is not there, is of a kind that is not served, or of
// none.
func ownedPods() (list []sample) {
	const lws, group, set, job, undefined, vain = v1alpha1.LeaderWorkerSetNameLabel, v1alpha1.LeaderWorkerGroupLabel, v1alpha1.JobSetNameLabel, v1alpha1.ReplicatedJobNameLabel, "has no minimum", v1alpha1.GangAnnotation
	for i, asks := range []string{v1alpha1.GangOwner, v1alpha1.GangOwnerPart} {
		for _, one := range []sample{
			{want: undefined, labels: map[string]string{lws: "none", group: fmt.Sprint(i)}}, {want: undefined, labels: map[string]string{set: fmt.Sprint("none-", i), job: "workers"}},
			{want: vain, labels: map[string]string{lws: "no-group"}}, {want: vain, labels: map[string]string{lws: "UPPER", group: "0"}}, {want: vain, labels: map[string]string{set: "a.b"}},
			{want: vain, labels: map[string]string{set: "a.b", job: "A"}}, {want: vain, labels: map[string]string{set: "-"}},
		} {
			list = append(list, pod(one.want, map[string]string{v1alpha1.GangAnnotation: asks}, one.labels, nil))
		}
	}
	return list
}

// jobs are gangs by owner with bad values in the templates of pods, which no node takes, and with numbers that cannot
// be; the name of one gang is that of another PodGroup.
func jobs() batch {
	b := batch{name: "jobs", first: []sample{{apiVersion: "scheduling.x-k8s.io/v1alpha1", kind: "PodGroup", name: "job.taken", spec: values{"minMember": 9}}}}
	add := func(name, want string, annotations map[string]string, change values) {
		large := podSpec()
		large["restartPolicy"], large["nodeSelector"] = "Never", values{"no-such-label": "x"}
		spec := values{"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": values{"metadata": values{"annotations": annotations}, "spec": large}}
		maps.Copy(spec, change)
		b.list = append(b.list, sample{apiVersion: "batch/v1", kind: "Job", name: name, spec: spec, want: want})
	}
	owner := map[string]string{v1alpha1.GangAnnotation: v1alpha1.GangOwner}
	for _, value := range append(hostile()[:4], "owner", "OWNER", "Job") {
		add("", v1alpha1.GangAnnotation, map[string]string{v1alpha1.GangAnnotation: value}, nil)
	}
	for _, key := range gangKeys {
		for _, value := range append(hostile()[:1:1], special()[key]...)[:min(2, 1+len(special()[key]))] {
			says := maps.Clone(owner)
			says[key] = value
			add("", key, says, nil)
		}
	}
	for _, one := range of("Job", false, values{}, map[string][]any{"parallelism": {-1, 0, 1 << 33, "x"}, "completions": {-1, 0, 1 << 33}, "completionMode": {"Gang"}, "suspend": {true}}) {
		add("", "", owner, one.spec)
	}
	add("taken", "was not made by", owner, nil)
	return b
}

// inNamespaces are pods, and members of gangs, in namespaces that name queues that there cannot be.
func inNamespaces() batch {
	b := batch{name: "namespaces"}
	for i, queue := range append(hostile(), "no-such-queue", "..", " ") {
		name, says := fmt.Sprintf("queue-%d", i), map[string]string{v1alpha1.QueueLabel: queue}
		b.first = append(b.first, sample{apiVersion: "v1", kind: "Namespace", name: name, annotations: says, cluster: true})
		for _, one := range []sample{pod("does not exist", nil, nil, nil), member("alone", v1alpha1.MinAvailableAnnotation, "1", "does not exist")} {
			one.namespace = name
			b.list = append(b.list, one)
		}
	}
	return b
}

// withPriority are members and pods with priorities at the end of numbers, and with those that the API server refuses.
func withPriority() batch {
	b := batch{name: "classes"}
	for i, fields := range []values{
		{"value": -1 << 31}, {"value": 1_000_000_000}, {"value": 1_000_000_001}, {"value": 1 << 33}, {"value": -1 << 33}, {"value": "x"}, {"value": 1.5}, {"value": 1, "preemptionPolicy": "Sometimes"},
	} {
		name, one := fmt.Sprintf("class-%d", i), member(fmt.Sprintf("g-%d", i), v1alpha1.ModeAnnotation, "strict", v1alpha1.ModeAnnotation)
		one.spec["priorityClassName"] = name
		b.first = append(b.first, sample{apiVersion: "scheduling.k8s.io/v1", kind: "PriorityClass", cluster: true, name: name, beside: fields})
		b.list = append(b.list, one)
	}
	b.list = append(b.list, pod("", nil, nil, values{"priority": 1 << 33}), pod("", nil, nil, values{"preemptionPolicy": "x"}), pod("", nil, nil, values{"priorityClassName": "no-such-class"}))
	return b
}

// nodes have amounts and labels that no node has. Nobody reports them: who writes nodes may do anything.
func nodes() (list []sample) {
	add := func(name, amount string, labels, annotations map[string]string) {
		has := values{"cpu": "1", "pods": "10"}
		has[name] = amount
		list = append(list, sample{apiVersion: "v1", kind: "Node", cluster: true, spec: values{}, labels: labels, annotations: annotations, beside: values{"status": values{"allocatable": has, "capacity": has}}})
	}
	for _, name := range []string{"cpu", "memory", "pods", "ephemeral-storage", "example.com/device", "a b"} {
		for _, amount := range []string{"-1", "1e30", "12Ei", "9223372036854775807", "1n", "many"} {
			add(name, amount, nil, nil)
		}
	}
	for _, label := range []string{v1.LabelHostname, v1.LabelTopologyZone, "topology.lockstep.dev/rack"} {
		for _, value := range []string{"", "node-0", "a b", strings.Repeat("x", 63)} {
			add("cpu", "1", map[string]string{label: value}, nil)
		}
	}
	for _, value := range hostile() {
		add("cpu", "1", nil, map[string]string{v1alpha1.ReservationMarksAnnotation: value})
	}
	return list
}

// budgets protect what they cannot. Kubernetes reports what it finds wrong; to Lockstep they are budgets.
func budgets() []sample {
	expressions := slices.Repeat([]any{values{"key": "k", "operator": "DoesNotExist"}}, 5000)
	numbers := []any{-1, 0, 1<<31 - 1, 1 << 33, "-1%", "100%", "101%", "1e3%", "x", ""}
	list := of("PodDisruptionBudget", false, values{"selector": values{}}, map[string][]any{
		"minAvailable": numbers, "maxUnavailable": numbers, "selector": {nil, values{"matchExpressions": expressions}, values{"matchLabels": values{"a b": "c"}}},
	})
	for i := range list {
		list[i].apiVersion, list[i].want = "policy/v1", ""
	}
	return list
}

// inQueues are pods in a line of 200 queues, of which the first 16 serve, and in a ring of 40.
func inQueues() batch {
	b := batch{name: "lines"}
	add := func(name, parent, want string) {
		b.first = append(b.first, sample{apiVersion: ours, kind: "Queue", cluster: true, name: name, spec: values{"parent": parent}, want: want})
	}
	add("line-0", "", "Serving")
	for i := 1; i < 200; i++ {
		add(fmt.Sprintf("line-%d", i), fmt.Sprintf("line-%d", i-1), map[bool]string{true: "Serving", false: "more than 16 levels"}[i < 16])
	}
	for i := range 40 {
		add(fmt.Sprintf("ring-%d", i), fmt.Sprintf("ring-%d", (i+1)%40), "more than 16 levels")
	}
	for _, queue := range []string{"line-16", "line-199", "ring-0", "ring-39"} {
		b.list = append(b.list, pod("admits no jobs", nil, map[string]string{v1alpha1.QueueLabel: queue}, nil))
	}
	return b
}

// longLists are values with very many entries, and stages that make no sense.
func longLists() (list []sample) {
	many := func(n int, entry string) string { // entry has a place for a number
		var text strings.Builder
		for i := range n {
			fmt.Fprintf(&text, ","+entry, i)
		}
		return text.String()[1:]
	}
	gangs := func(n int) string { return "[" + many(n, `"x/no-such-gang-%d"`) + "]" }
	long := map[string][]string{
		v1alpha1.GroupsAnnotation:              {gangs(65), gangs(1000), gangs(5000)},
		v1alpha1.MinByRoleAnnotation:           {"{" + many(5000, `"role-%d":1`) + "}"},
		v1alpha1.TopologySlicesAnnotation:      {"[" + many(5000, `{"topology":"t-%d","size":1}`) + "]"},
		v1alpha1.NetworkTopologySpecAnnotation: {`{"gatherStrategy":[` + many(5000, `{"layer":"l-%d"}`) + "]}"},
		v1alpha1.StagesAnnotation: {
			"1,1,-5", "2,,", "9223372036854775807,1", "1;1", "null", "[1,1]", ",", "1e0,1", strings.Repeat("1,", 5000) + "1", "100001",
		},
		v1alpha1.WaitingTimeAnnotation:     {"2562048h", "1e9h", "9223372036854775808ns", "-2562047h"},
		v1alpha1.PreemptionDelayAnnotation: {"2562048h", "1e9h", "9223372036854775808ns", "-1ns"},
	}
	for key, texts := range long {
		for _, text := range texts {
			list = append(list, member(fmt.Sprintf("g-%d", len(list)), key, text, key))
		}
	}
	awaits := member("awaits", v1alpha1.GroupsAnnotation, gangs(64), "listed in its groups annotation")
	awaits.annotations[v1alpha1.MinAvailableAnnotation] = "1"
	return append(list, awaits)
}

// ringedGangs are more gangs than start together, all of which name those beside them, and none of which is whole.
func ringedGangs() (list []sample) {
	const gangs, beside = 130, 31
	for i := range gangs {
		names := ""
		for step := 1; step <= beside; step++ {
			names += fmt.Sprintf(`,"bad-rings/g-%d","bad-rings/g-%d"`, (i+step)%gangs, (i+gangs-step)%gangs)
		}
		list = append(list, member(fmt.Sprintf("g-%d", i), v1alpha1.GroupsAnnotation, "["+names[1:]+"]", "has 1 of 2 members"))
	}
	return list
}
