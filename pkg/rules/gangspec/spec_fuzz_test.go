package gangspec

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// FuzzParse checks, whatever users write: the spec is within its bounds; every value is either in
// the spec as written or reported as a problem; and a spec that is written out again reads the
// same.
func FuzzParse(f *testing.F) {
	f.Add("3", "5", "90s", "NonStrict", `["a/x","ns/train"]`, "only-waiting", `{"ps":1}`, "rack", "90s", int32(2), int32(30), false)
	f.Add("xxx", "1", "nonsense", "nonsense", "nonsense", "nonsense", "nonsense", "a b", "nonsense", int32(-1), int32(-1), false)
	f.Add("0", "100001", "0s", "strict", "null", "", "null", "a/b/c", "-1s", int32(100001), int32(0), true)
	f.Add("007", "0x7", "1e9h", " Strict", `[null]`, "once-satisfied ", `{"":1}`, "/", "1e9h", int32(0), int32(1), true)
	f.Add("", "", "", "", `""`, "", `{"ps":null,"w":1.5}`, "", "0", int32(1), int32(0), true)
	f.Fuzz(func(t *testing.T, minimum, total, wait, mode, groups, policy, roles, topology, delay string, field, seconds int32, onObject bool) {
		said := values{minKey: minimum, totalKey: total, waitKey: wait, modeKey: mode, groupsKey: groups, policyKey: policy, rolesKey: roles, requiredKey: topology, v1alpha1.PreemptionDelayAnnotation: delay}
		object, pod := &PodGroupDescription{Min: field, RoundSeconds: &seconds}, &v1.Pod{}
		if onObject {
			object.Annotations = said
		} else {
			pod.Annotations = said
		}
		key := Key{"ns", "train"}
		spec, problems := Parse(key, object, pod, Defaults{WaitTime: time.Minute})
		checkBounds(t, key, spec)
		for key, value := range said {
			if spec.Refused != "" && key == minKey {
				continue // no member is scheduled, whatever the minimum
			}
			checkSaid(t, spec, problems, key, value, onObject)
		}
		for _, p := range problems {
			if p.Key == "" || p.Value == "" || p.Want == "" || p.Used == "" {
				t.Errorf("a problem leaves something out: %+v", p)
			}
		}
		if spec.Min > 0 {
			again, problems := Parse(key, &PodGroupDescription{RoundSeconds: new(int32(spec.RoundTime / time.Second))}, &v1.Pod{ObjectMeta: podMeta{Annotations: written(spec)}}, Defaults{WaitTime: time.Minute})
			if diff := cmp.Diff(spec, again); diff != "" || len(problems) > 0 {
				t.Errorf("written out and read again, problems %v (-want +got):\n%s", problems, diff)
			}
		}
	})
}

func checkBounds(t *testing.T, key Key, spec Spec) {
	t.Helper()
	if spec.Min < 0 || spec.Min > maxCount || spec.WaitTime <= 0 || spec.RoundTime < 0 || spec.PreemptionDelay < 0 {
		t.Errorf("out of bounds: %+v", spec)
	}
	if spec.Mode != Strict && spec.Mode != NonStrict || !slices.Contains([]MatchPolicy{OnceSatisfied, OnlyWaiting, WaitingAndRunning}, spec.Policy) {
		t.Errorf("unknown mode or policy: %+v", spec)
	}
	if !slices.IsSortedFunc(spec.Groups, CompareKeys) || len(slices.Compact(slices.Clone(spec.Groups))) != len(spec.Groups) || slices.Contains(spec.Groups, key) {
		t.Errorf("groups not sorted, not unique, or with the gang itself: %v", spec.Groups)
	}
	for role, n := range spec.MinByRole {
		if role == "" || n < 0 || n > maxCount {
			t.Errorf("role %q has minimum %d", role, n)
		}
	}
}

func checkSaid(t *testing.T, spec Spec, problems []KeyProblem, key, value string, onObject bool) {
	t.Helper()
	told := slices.ContainsFunc(problems, func(p KeyProblem) bool {
		return p.Key == key && p.Value == value && p.OnObject == onObject
	})
	if value != "" && !told && !isSaid(spec, key, value) {
		t.Errorf("%s: %q passed silently into %+v", key, value, spec)
	}
}

// isSaid is a plain reading of a value, to compare with.
func isSaid(spec Spec, key, value string) bool {
	count := func(n int) bool { return strings.TrimLeft(value, "0") == strconv.Itoa(n) }
	switch key {
	case minKey:
		return count(spec.Min)
	case totalKey:
		n, err := strconv.Atoi(value)
		return err == nil && max(spec.Min, 1) <= n && n <= maxCount
	case waitKey:
		d, err := time.ParseDuration(value)
		return err == nil && d == spec.WaitTime && spec.WaitTimeSet
	case v1alpha1.PreemptionDelayAnnotation:
		d, err := time.ParseDuration(value)
		return err == nil && d == spec.PreemptionDelay
	case modeKey:
		return value == string(spec.Mode)
	case policyKey:
		return value == string(spec.Policy)
	case requiredKey:
		return value == spec.RequiredTopology
	case groupsKey:
		var names []any
		if value == `""` {
			return spec.Groups == nil
		}
		if json.Unmarshal([]byte(value), &names) != nil || names == nil {
			return false
		}
		want := map[any]bool{"ns/train": true}
		for _, key := range spec.Groups {
			want[key.String()] = true
		}
		return !slices.ContainsFunc(names, func(name any) bool { return !want[name] })
	case rolesKey:
		var roles map[string]any
		if json.Unmarshal([]byte(value), &roles) != nil || roles == nil || len(roles) != len(spec.MinByRole) {
			return false
		}
		for role, n := range roles {
			if got, ok := spec.MinByRole[role]; !ok || n != float64(got) {
				return false
			}
		}
		return true
	}
	return false
}

// writeLayout writes how a gang is laid out, where no levels of the cluster are known.
func writeLayout(out values, layout *Layout) {
	var slices []string
	for _, level := range layout.Levels {
		if level.Slice == 0 {
			out[preferKey] = level.Key
		} else {
			slices = append(slices, fmt.Sprintf(`{"topology":%q,"size":%d}`, level.Key, level.Slice))
		}
	}
	if len(slices) > 0 {
		out[v1alpha1.TopologySlicesAnnotation] = "[" + strings.Join(slices, ",") + "]"
	}
	if layout.Even {
		out[v1alpha1.TopologySpreadAnnotation] = v1alpha1.TopologySpreadEven
	}
	if layout.Shared {
		out[v1alpha1.TopologyScopeAnnotation] = v1alpha1.TopologyScopeGroup
	}
}

// written returns a spec as a user would write it.
func written(spec Spec) values {
	out := values{
		minKey: strconv.Itoa(spec.Min), modeKey: string(spec.Mode),
		policyKey: string(spec.Policy), requiredKey: spec.RequiredTopology,
	}
	writeLayout(out, &spec.Layout)
	if spec.WaitTimeSet {
		out[waitKey] = spec.WaitTime.String()
	}
	names := []string{}
	for _, key := range spec.Groups {
		names = append(names, key.String())
	}
	list, _ := json.Marshal(names)
	out[groupsKey] = string(list)
	if spec.PreemptionDelay > 0 {
		out[v1alpha1.PreemptionDelayAnnotation] = spec.PreemptionDelay.String()
	}
	if spec.Stages != nil {
		sizes, before := make([]string, len(spec.Stages)), 0
		for i, n := range spec.Stages {
			sizes[i], before = strconv.Itoa(n-before), n
		}
		out[v1alpha1.StagesAnnotation] = strings.Join(sizes, ",")
	}
	if spec.MinByRole != nil {
		roles, _ := json.Marshal(spec.MinByRole)
		out[rolesKey] = string(roles)
	}
	return out
}
