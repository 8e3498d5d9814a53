package badinput_test

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// values is a JSON object.
type values = map[string]any

// sample is an object with one bad value. The API server refuses it, or an event, a condition or another field of the
// status of the object has want: the field or the key.
type sample struct {
	apiVersion, kind, name string
	annotations, labels    map[string]string
	spec                   values
	beside                 values // other fields beside spec
	want                   string // empty if there is nobody to report it to
	cluster                bool   // it is in no namespace
	namespace              string // empty for that of the batch
}

// hostile are values that no key takes: not even as JSON, a number, a duration or the key of a label.
func hostile() []string {
	return []string{"a b", "\x1b[31mred", "{", "ü/ü/ü", strings.Repeat("x y", 60_000)}
}

const (
	never    = "-1s"
	longAgo  = "soon"
	tooLong  = "9999999999h"
	ordinary = "lockstep-scheduler"
	ours     = "scheduling.lockstep.dev/v1alpha1"
)

var (
	topologyKeys = []string{
		v1alpha1.RequiredTopologyAnnotation, v1alpha1.PreferredTopologyAnnotation, v1alpha1.TopologySlicesAnnotation,
		v1alpha1.TopologySpreadAnnotation, v1alpha1.NetworkTopologySpecAnnotation,
	}
	gangKeys = append([]string{
		v1alpha1.MinAvailableAnnotation, v1alpha1.TotalNumberAnnotation, v1alpha1.ModeAnnotation, v1alpha1.WaitingTimeAnnotation,
		v1alpha1.GroupsAnnotation, v1alpha1.MatchPolicyAnnotation, v1alpha1.TopologyScopeAnnotation, v1alpha1.StagesAnnotation,
		v1alpha1.PreemptionDelayAnnotation, v1alpha1.MinByRoleAnnotation,
	}, topologyKeys...)
	counts = []string{"-1", "0", "1e30", "1.5", "9223372036854775808", "1n"}
	times  = []string{never, longAgo, tooLong, "1", "1d"}
)

// special are values that are bad for one key.
func special() map[string][]string {
	return map[string][]string{
		v1alpha1.MinAvailableAnnotation: counts, v1alpha1.TotalNumberAnnotation: counts, v1alpha1.WaitingTimeAnnotation: times,
		v1alpha1.PreemptionDelayAnnotation: times, v1alpha1.ModeAnnotation: {"strict"}, v1alpha1.MatchPolicyAnnotation: {"once_satisfied"},
		v1alpha1.GroupsAnnotation: {"null", `["a"]`, `{"a":1}`, `["UPPER/x"]`}, v1alpha1.StagesAnnotation: {"0,1", "1", "1e9"},
		v1alpha1.MinByRoleAnnotation:           {"null", `{"a":"1"}`, `{"a":-1}`, `{"a":99}`, `{"a":1e30}`},
		v1alpha1.TopologySlicesAnnotation:      {"null", `[{"topology":"x"}]`, `[{"topology":"x","size":-1}]`, `[{"size":2}]`},
		v1alpha1.NetworkTopologySpecAnnotation: {"null", `{"unknown":1}`, `{"gatherStrategy":[{"layer":"x","strategy":"MustGather"}]}`},
	}
}

func podSpec() values {
	return values{"schedulerName": ordinary, "terminationGracePeriodSeconds": 0, "containers": []any{
		values{"name": "main", "image": "none", "resources": values{"requests": values{"cpu": "1m"}}},
	}}
}

// onPods are bad values on pods: as members of gangs, and in none.
func onPods() (list []sample) {
	for _, key := range gangKeys {
		for _, value := range append(hostile(), special()[key]...) {
			list = append(list, member(fmt.Sprintf("g-%d", len(list)), key, value, key))
		}
	}
	for _, key := range topologyKeys {
		list = append(list, pod(key, map[string]string{key: "a b"}, nil, nil)) // in no gang
	}
	for _, value := range append(hostile(), "owner", "OWNER", "Owner") {
		list = append(list, pod(v1alpha1.GangAnnotation, map[string]string{v1alpha1.GangAnnotation: value}, nil, nil))
	}
	for _, value := range []string{"4", "four"} {
		list = append(list, pod(v1alpha1.MinAvailableAnnotation, map[string]string{v1alpha1.MinAvailableAnnotation: value}, nil, nil))
	}
	for _, value := range []string{"x", "-1", "100000", "1e3"} {
		list = append(list, member(fmt.Sprintf("g-%d", len(list)), v1alpha1.NetworkTopologyIndexAnnotation, value, v1alpha1.NetworkTopologyIndexAnnotation))
	}
	for _, value := range []string{"four", "0", "-1", "a b"} {
		list = append(list, pod(v1alpha1.PodGroupMinAvailableLabel, nil, map[string]string{v1alpha1.PodGroupNameLabel: fmt.Sprintf("g-%d", len(list)), v1alpha1.PodGroupMinAvailableLabel: value}, nil))
	}
	return append(list, pod("no-such-queue", nil, map[string]string{v1alpha1.QueueLabel: "no-such-queue"}, nil),
		pod("no-such-group", nil, map[string]string{v1alpha1.PodGroupLabel: "no-such-group"}, nil), pod("no-such-rsv", map[string]string{v1alpha1.ReservationAnnotation: "no-such-rsv"}, nil, nil))
}

// onPodGroups are bad values on PodGroups.
func onPodGroups() (list []sample) {
	group := sample{apiVersion: "scheduling.x-k8s.io/v1alpha1", kind: "PodGroup"}
	for _, key := range gangKeys {
		for _, value := range append(hostile()[:4], special()[key]...) {
			s := group
			s.annotations, s.spec, s.want = map[string]string{key: value}, values{"minMember": 2}, key
			list = append(list, s)
		}
	}
	for field, bad := range map[string][]any{
		"minMember": {-1, 1 << 33, "two", 100001}, "scheduleTimeoutSeconds": {-1, 1 << 33, "soon"}, "minResources": amounts(),
	} {
		for _, value := range bad {
			s := group
			s.spec, s.want = values{"minMember": 2, field: value}, field
			list = append(list, s)
		}
	}
	return list
}

// of makes samples of one of our kinds from a good spec, each with one bad field.
func of(kind string, cluster bool, good values, bad map[string][]any) (list []sample) {
	for field, values := range bad {
		for _, value := range values {
			spec := clone(good)
			if spec[field] = value; value == nil {
				delete(spec, field)
			}
			list = append(list, sample{apiVersion: ours, kind: kind, cluster: cluster, spec: spec, want: field})
		}
	}
	return list
}

func clone(good values) values {
	spec := values{}
	if text, err := json.Marshal(good); err != nil || json.Unmarshal(text, &spec) != nil {
		panic(err)
	}
	return spec
}

// amounts are such as nothing has, or as cannot be read, or only in minutes.
func amounts() []any {
	list := []any{"x"}
	for _, cpu := range []string{"-1", "many", "1e30", "1e1.5", "1e10000000", "1e-2000000000", "12345678901234567890e1000000"} {
		list = append(list, values{"cpu": cpu})
	}
	return list
}

func badNames() []any {
	return []any{"", "a/b", "..", "a%2fb", "A b", "\x1b[31m", "ü", strings.Repeat("x", 254), 7, nil}
}

func badTimes(more ...any) []any {
	return append([]any{never, longAgo, tooLong, "1", "", "10 minutes", 7}, more...)
}

func migrations() []sample {
	good := values{"podName": "p", "podUID": "u", "sourceNode": "node-0", "targetNode": "node-1"}
	return of("PodMigration", false, good, map[string][]any{
		"podName": badNames(), "sourceNode": badNames(), "targetNode": append(badNames(), "node-0"), "podUID": {"", nil, strings.Repeat("x", 200)},
		"timeout": badTimes(), "reservation": badNames()[1:8],
	})
}

func plans() []sample {
	shape := func(field string, value any) any {
		return values{"shape": func() values {
			s := values{"members": 2, "requests": values{"cpu": "1"}}
			s[field] = value
			return s
		}()}
	}
	pod := values{"name": "p", "namespace": "default", "uid": "u"}
	return of("DefragmentationPlan", true, values{"goal": values{"podGroup": "a/b"}}, map[string][]any{
		"goal": {
			nil, values{}, values{"podGroup": ""}, values{"podGroup": "a b"}, values{"podGroup": "nonsense"}, values{"podGroup": "\x1b[31m/x"},
			values{"podGroup": "a/b", "pod": pod}, values{"pod": values{"name": "p", "namespace": "default"}},
			shape("members", 0), shape("members", -1), shape("members", 1<<33), shape("topology", "a b"), shape("more", -1), shape("requests", values{}),
			values{"empty": values{"unit": "a b", "names": []any{"x"}}}, values{"empty": values{"names": []any{}}}, values{"empty": values{"names": []any{strings.Repeat("x", 64)}}},
		},
		"budget": {values{"maxMoves": 0}, values{"maxMoves": 5000}, values{"maxGangs": -1}, values{"maxEvictions": "x"}}, "holdTime": badTimes(), "mode": {"execute", 7},
	})
}

func reservations() []sample {
	template := func(meta values, change values) values {
		spec := podSpec()
		for field, value := range change {
			spec[field] = value
		}
		return values{"metadata": meta, "spec": spec}
	}
	with := func(field string, value any) values { return template(values{}, values{field: value}) }
	good := values{"template": template(values{}, nil), "owners": []any{values{"podGroup": "a/b"}}}
	list := of("Reservation", true, good, map[string][]any{
		"ttl": badTimes("87601h"), "expires": {"soon", 7, "0001-01-01T00:00:00Z", "10000-01-01T00:00:00Z"}, "startTime": {"soon", 7, "9999-12-31T23:59:59Z"}, "allocatePolicy": {"aligned"}, "replicas": {0, -1, 2000, 1 << 33, "x"},
		"nodeNames": {[]any{"a", "b"}, []any{"no-such-node"}},
		"owners": {
			nil, []any{}, []any{values{}}, []any{values{"podGroup": "a b"}}, []any{values{"labelSelector": values{}}}, []any{values{"labelSelector": values{"matchLabels": values{"a b": "c"}}}},
			[]any{values{"namespace": "x"}},
		},
		"template": {
			nil, values{}, with("containers", []any{}), with("nodeName", "node-0"), with("schedulingGates", []any{values{"name": "x"}}), with("nodeSelector", values{"a b": "c"}),
			with("priorityClassName", "no-such-class"), with("tolerations", []any{values{"operator": "Nonsense"}}), with("volumes", []any{values{"name": "v", "persistentVolumeClaim": values{"claimName": "c"}}}),
			with("containers", []any{values{"name": "m", "image": "i", "resources": values{"requests": values{"cpu": "-1"}}}}),
			with("containers", []any{values{"name": "m", "image": "i", "resources": values{"requests": values{"a b": "1"}}}}),
			with("containers", []any{values{"name": "m", "image": "i", "resources": values{"requests": values{"cpu": "many"}}}}),
			template(values{"labels": values{"a b": "c"}}, nil), template(values{"labels": values{"c": "a b"}}, nil), template(values{"namespace": "A B"}, nil),
		},
	})
	for _, key := range topologyKeys {
		for _, value := range append(hostile()[:4], special()[key]...) {
			says := values{}
			says[key] = value
			for _, replicas := range []int{1, 2} {
				spec := clone(good)
				spec["replicas"] = replicas
				list = append(list, sample{apiVersion: ours, kind: "Reservation", cluster: true, annotations: map[string]string{key: value}, spec: spec, want: key})
			}
			spec := clone(good)
			spec["template"] = template(values{"annotations": says}, nil)
			list = append(list, sample{apiVersion: ours, kind: "Reservation", cluster: true, spec: spec, want: key})
		}
	}
	return list
}

func queues() []sample {
	list := of("Queue", true, values{}, map[string][]any{
		"parent": {"no-such-parent", 7}, "deserved": append(amounts(), values{"a b": "1"}, values{"\x1b[31m": "1"}),
		"guarantee": {values{"cpu": "-1"}, "x"}, "capability": {values{"cpu": "-1"}, values{"a b": "1"}}, "minRuntime": badTimes(), "priority": {1 << 33, "x"},
		"pools": {[]any{values{"name": "default"}}, []any{values{}}},
	})
	exceeds := values{"guarantee": values{"cpu": "2"}, "deserved": values{"cpu": "1"}, "capability": values{"cpu": "1"}}
	list = append(list, sample{apiVersion: ours, kind: "Queue", cluster: true, spec: exceeds, want: "guarantee"})
	for _, ring := range [][]string{{"self"}, {"ring-a", "ring-b"}} {
		for i, name := range ring {
			list = append(list, sample{apiVersion: ours, kind: "Queue", cluster: true, name: name, spec: values{"parent": ring[(i+1)%len(ring)]}, want: "parent"})
		}
	}
	return list
}
