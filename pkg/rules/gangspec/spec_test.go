package gangspec

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

const (
	minKey      = v1alpha1.MinAvailableAnnotation
	totalKey    = v1alpha1.TotalNumberAnnotation
	waitKey     = v1alpha1.WaitingTimeAnnotation
	modeKey     = v1alpha1.ModeAnnotation
	groupsKey   = v1alpha1.GroupsAnnotation
	policyKey   = v1alpha1.MatchPolicyAnnotation
	rolesKey    = v1alpha1.MinByRoleAnnotation
	requiredKey = v1alpha1.RequiredTopologyAnnotation
	preferKey   = v1alpha1.PreferredTopologyAnnotation
	minLabel    = v1alpha1.PodGroupMinAvailableLabel
)

type values = map[string]string

// parsed is a spec and the messages for users.
type parsed struct {
	Spec     Spec
	Problems []string
	OnObject []string // the keys of those problems that the PodGroup has
}

// podMeta is what a pod says.
type podMeta = metav1.ObjectMeta

func parsedOf(object *PodGroupDescription, pod podMeta) parsed {
	spec, problems := Parse(Key{"ns", "train"}, object, &v1.Pod{ObjectMeta: pod}, Defaults{WaitTime: 10 * time.Minute})
	got := parsed{Spec: spec}
	for _, p := range problems {
		got.Problems = append(got.Problems, p.String())
		if p.OnObject {
			got.OnObject = append(got.OnObject, p.Key)
		}
	}
	return got
}

// defaults returns the spec of a gang of the given minimum that says nothing else.
func defaults(minimum int) Spec {
	return Spec{Min: minimum, Mode: Strict, WaitTime: 10 * time.Minute, Policy: OnceSatisfied}
}

func with(spec Spec, change func(*Spec)) Spec {
	change(&spec)
	return spec
}

func TestParse(t *testing.T) {
	const notCount = ` is not a whole number from 1 to 100000; using `
	const heldBack = `nothing: the gang is held back until it has a minimum`
	for sentence, c := range map[string]struct {
		object *PodGroupDescription
		pod    podMeta
		want   parsed
	}{
		"nothing said is no minimum": {want: parsed{Spec: defaults(0)}},
		"every field can be said by the pod": {
			pod: podMeta{Annotations: values{
				minKey: "3", totalKey: "5", waitKey: "90s", modeKey: "NonStrict", groupsKey: `["b/y","ns/train","a/x","b/y"]`,
				policyKey: "only-waiting", rolesKey: `{"ps":1,"worker":2}`, requiredKey: "example.com/rack", preferKey: "example.com/row",
			}},
			want: parsed{Spec: Spec{
				Min: 3, WaitTime: 90 * time.Second, WaitTimeSet: true, Mode: NonStrict, Groups: []Key{{"a", "x"}, {"b", "y"}},
				Policy: OnlyWaiting, MinByRole: map[string]int{"ps": 1, "worker": 2}, RequiredTopology: "example.com/rack", Layout: Layout{Levels: []Level{{Key: "example.com/row"}}},
			}},
		},
		"every field can be said by the PodGroup": {
			object: &PodGroupDescription{Min: 3, RoundSeconds: new(int32(90)), Annotations: values{
				totalKey: "5", modeKey: "NonStrict", groupsKey: `["a/x"]`, policyKey: "waiting-and-running",
				rolesKey: `{"ps":0}`, requiredKey: "rack", preferKey: "row",
			}},
			want: parsed{Spec: Spec{
				Min: 3, WaitTime: 10 * time.Minute, RoundTime: 90 * time.Second, Mode: NonStrict, Groups: []Key{{"a", "x"}},
				Policy: WaitingAndRunning, MinByRole: map[string]int{"ps": 0}, RequiredTopology: "rack", Layout: Layout{Levels: []Level{{Key: "row"}}},
			}},
		},
		"a preemption delay": {
			object: &PodGroupDescription{Min: 3, Annotations: values{v1alpha1.PreemptionDelayAnnotation: "90s"}},
			want:   parsed{Spec: with(defaults(3), func(s *Spec) { s.PreemptionDelay = 90 * time.Second })},
		},
		"the pod wins field by field": {
			object: &PodGroupDescription{Min: 3, RoundSeconds: new(int32(90)), Annotations: values{totalKey: "7", modeKey: "NonStrict", requiredKey: "rack"}},
			pod:    podMeta{Annotations: values{minKey: "4", waitKey: "1h", requiredKey: "zone"}},
			want: parsed{Spec: Spec{
				Min: 4, Mode: NonStrict, WaitTime: time.Hour, WaitTimeSet: true, RoundTime: 90 * time.Second, Policy: OnceSatisfied, RequiredTopology: "zone",
			}},
		},
		"the PodGroup's annotations win over its fields": {
			object: &PodGroupDescription{Min: 3, RoundSeconds: new(int32(90)), Annotations: values{minKey: "5", waitKey: "1h"}},
			want:   parsed{Spec: with(defaults(5), func(s *Spec) { s.WaitTime, s.WaitTimeSet, s.RoundTime = time.Hour, true, 90*time.Second })},
		},
		"an empty annotation of the pod asks for the default": {
			object: &PodGroupDescription{Min: 3, Annotations: values{modeKey: "NonStrict", groupsKey: `["a/x"]`, requiredKey: "rack", rolesKey: `{"ps":1}`, totalKey: "9", policyKey: "only-waiting"}},
			pod:    podMeta{Annotations: values{minKey: "", modeKey: "", groupsKey: "", requiredKey: "", rolesKey: "", totalKey: "", policyKey: "", waitKey: ""}},
			want:   parsed{Spec: defaults(3)},
		},
		"the minimum may be a label": {
			pod:  podMeta{Labels: values{minLabel: "4"}},
			want: parsed{Spec: defaults(4)},
		},
		"the community's minimum may be an annotation": {
			pod:  podMeta{Annotations: values{minLabel: "4"}},
			want: parsed{Spec: defaults(4)},
		},
		"the gang's minimum wins over the community's": {
			pod:  podMeta{Annotations: values{minKey: "2", minLabel: "3"}, Labels: values{minLabel: "4"}},
			want: parsed{Spec: defaults(2)},
		},
		"a bad minimum holds the gang back": {
			pod:  podMeta{Annotations: values{minKey: "xxx"}},
			want: parsed{Spec: defaults(0), Problems: []string{minKey + `: "xxx"` + notCount + heldBack}},
		},
		"a bad minimum in a label holds the gang back": {
			pod:  podMeta{Labels: values{minLabel: "0"}},
			want: parsed{Spec: defaults(0), Problems: []string{minLabel + `: "0"` + notCount + heldBack}},
		},
		"a bad minimum falls back to the PodGroup's": {
			object: &PodGroupDescription{Min: 3},
			pod:    podMeta{Annotations: values{minKey: "-2"}},
			want:   parsed{Spec: defaults(3), Problems: []string{minKey + `: "-2"` + notCount + "3, the PodGroup's minimum"}},
		},
		"a bad minimum falls back to the PodGroup's annotation": {
			object: &PodGroupDescription{Annotations: values{minKey: "6"}},
			pod:    podMeta{Annotations: values{minKey: "2.5"}},
			want:   parsed{Spec: defaults(6), Problems: []string{minKey + `: "2.5"` + notCount + "6, the PodGroup's minimum"}},
		},
		"minimums are bounded": {
			pod:  podMeta{Annotations: values{minKey: "100001"}},
			want: parsed{Spec: defaults(0), Problems: []string{minKey + `: "100001"` + notCount + heldBack}},
		},
		"the PodGroup's minimum is bounded, too": {
			object: &PodGroupDescription{Min: 100001},
			want:   parsed{Spec: defaults(0), Problems: []string{`spec.minMember: "100001"` + notCount + heldBack}, OnObject: []string{"spec.minMember"}},
		},
		"a negative minimum of the PodGroup is told": {
			object: &PodGroupDescription{Min: -1},
			want:   parsed{Spec: defaults(0), Problems: []string{`spec.minMember: "-1"` + notCount + heldBack}, OnObject: []string{"spec.minMember"}},
		},
		"a bad annotation of the PodGroup falls back to its field": {
			object: &PodGroupDescription{Min: 3, Annotations: values{minKey: "many"}},
			want:   parsed{Spec: defaults(3), Problems: []string{minKey + `: "many"` + notCount + "3, the PodGroup's minimum"}, OnObject: []string{minKey}},
		},
		"what the pod overrides is not looked at": {
			object: &PodGroupDescription{Min: -1, RoundSeconds: new(int32(0)), Annotations: values{minKey: "many", modeKey: "loose"}},
			pod:    podMeta{Annotations: values{minKey: "2", waitKey: "5s", modeKey: "Strict"}},
			want:   parsed{Spec: with(defaults(2), func(s *Spec) { s.WaitTime, s.WaitTimeSet = 5*time.Second, true })},
		},
		"a total below the minimum is the minimum": {
			pod:  podMeta{Annotations: values{minKey: "3", totalKey: "2"}},
			want: parsed{Spec: defaults(3), Problems: []string{totalKey + `: "2" is not at least the minimum; using 3, the minimum`}},
		},
		"a bad total without a minimum": {
			pod:  podMeta{Annotations: values{totalKey: "0"}},
			want: parsed{Spec: defaults(0), Problems: []string{totalKey + `: "0"` + notCount + "the minimum, once there is one"}},
		},
		"a bad mode of the PodGroup is the PodGroup's problem": {
			object: &PodGroupDescription{Annotations: values{modeKey: "strict"}},
			pod:    podMeta{Annotations: values{minKey: "2"}},
			want:   parsed{Spec: defaults(2), Problems: []string{modeKey + `: "strict" is not one of Strict, NonStrict; using Strict`}, OnObject: []string{modeKey}},
		},
		"a bad wait time of a NonStrict gang is that of such": {
			pod:  podMeta{Annotations: values{minKey: "2", modeKey: "NonStrict", waitKey: "60"}},
			want: parsed{Spec: with(defaults(2), func(s *Spec) { s.Mode = NonStrict }), Problems: []string{waitKey + `: "60" is not a positive duration such as 90s or 1h; using 10m0s, the default`}},
		},
		"a bad wait time of a gang that has time for its rounds is none": {
			object: &PodGroupDescription{RoundSeconds: new(int32(30))},
			pod:    podMeta{Annotations: values{minKey: "2", waitKey: "soon"}},
			want: parsed{
				Spec:     with(defaults(2), func(s *Spec) { s.RoundTime = 30 * time.Second }),
				Problems: []string{waitKey + `: "soon" is not a positive duration such as 90s or 1h; using none: rounds of 30s, as the PodGroup has it, without an end`},
			},
		},
		"operators write 0 for no time": {
			object: &PodGroupDescription{Min: 2, RoundSeconds: new(int32(0))},
			want:   parsed{Spec: defaults(2)},
		},
		"the time of rounds is not negative": {
			object: &PodGroupDescription{Min: 2, RoundSeconds: new(int32(-1))},
			want: parsed{
				Spec:     defaults(2),
				Problems: []string{`spec.scheduleTimeoutSeconds: "-1" is not a number of seconds, or 0 for none; using none: rounds have no time of their own`},
				OnObject: []string{"spec.scheduleTimeoutSeconds"},
			},
		},
		"more groups than can start together are none": {
			pod:  podMeta{Annotations: values{minKey: "2", groupsKey: "[" + strings.Repeat(`"a/x",`, maxTogether) + `"a/y"]`}},
			want: parsed{Spec: defaults(2), Problems: []string{KeyProblem{Key: groupsKey, Value: "[" + strings.Repeat(`"a/x",`, maxTogether) + `"a/y"]`, Want: "a list of at most 64 gangs", Used: "none: the gang is alone"}.String()}},
		},
		"a topology is a label key": {
			pod: podMeta{Annotations: values{minKey: "2", requiredKey: "a/rack", preferKey: "a/b/c"}},
			want: parsed{Spec: with(defaults(2), func(s *Spec) { s.RequiredTopology = "a/rack" }), Problems: []string{
				preferKey + `: "a/b/c" is not a node label key; using no topology`,
			}},
		},
		"members go nowhere by a required topology that is no label key": {
			pod: podMeta{Annotations: values{minKey: "2", requiredKey: "a rack"}},
			want: parsed{Spec: with(defaults(2), func(s *Spec) {
				s.Min, s.Refused = 0, requiredKey+`: "a rack" is not a node label key; correct it on its pods, in the template that they are made from`
			}), Problems: []string{requiredKey + `: "a rack" is not a node label key; using nothing: the gang waits until this is corrected`}},
		},
		"nor by a scope that is none": {
			object: &PodGroupDescription{Min: 2, Annotations: values{v1alpha1.TopologyScopeAnnotation: "Group"}},
			want: parsed{Spec: with(defaults(2), func(s *Spec) {
				s.Min, s.Refused = 0, v1alpha1.TopologyScopeAnnotation+`: "Group" is not group; correct it on its PodGroup`
			}), Problems: []string{v1alpha1.TopologyScopeAnnotation + `: "Group" is not group; using nothing: the gang waits until this is corrected`},
				OnObject: []string{v1alpha1.TopologyScopeAnnotation}},
		},
		"roles whose minimums add up to more than the minimum mean nothing": {
			pod: podMeta{Annotations: values{minKey: "2", rolesKey: `{"ps":1,"worker":2}`}},
			want: parsed{Spec: with(defaults(2), func(s *Spec) { s.MinByRole = map[string]int{"ps": 1, "worker": 2} }), Problems: []string{
				rolesKey + `: "{\"ps\":1,\"worker\":2}" is not within the minimum of 2: its sum is 3; using no minimum by role: members of any roles start the gang`,
			}},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(c.want, parsedOf(c.object, c.pod)); diff != "" {
				t.Errorf("Parse (-want +got):\n%s", diff)
			}
		})
	}
}

// TestParseValues: what a pod of a gang of two says by one key does not change what the gang asks for, and is reported
// where it is no value of that key.
func TestParseValues(t *testing.T) {
	const (
		badWait   = " is not a positive duration such as 90s or 1h; using 10m0s, the default, for each round, without an end"
		badGroups = ` is not a JSON list of "namespace/name"; using none: the gang is alone`
		badRoles  = " is not a JSON object from role to a minimum of 0 to 100000; using no minimum by role"
	)
	for _, c := range []struct{ key, value, problem string }{
		{groupsKey, `""`, ""},
		{groupsKey, `[]`, ""},
		{groupsKey, `["ns/train"]`, ""}, // itself
		{rolesKey, `{}`, ""},
		{totalKey, "all", " is not a whole number from 1 to 100000; using 2, the minimum"},
		{modeKey, "strict", " is not one of Strict, NonStrict; using Strict"},
		{policyKey, "never", " is not one of once-satisfied, only-waiting, waiting-and-running; using once-satisfied"},
		{waitKey, "60", badWait},
		{waitKey, "-1s", badWait},
		{groupsKey, "a/x", badGroups},
		{groupsKey, `["a/x","y"]`, badGroups},
		{groupsKey, "null", badGroups},
		{rolesKey, "ps=1", badRoles},
		{rolesKey, "null", badRoles},
		{rolesKey, `{"ps":null}`, badRoles},
		{rolesKey, `{"ps":-1}`, badRoles},
		{rolesKey, `{"a b":1}`, badRoles},
		{v1alpha1.NetworkTopologySpecAnnotation, `{"gather":[]}`, " is not a JSON object with a gatherStrategy; using no topology"},
		{v1alpha1.PreemptionDelayAnnotation, "-1s", " is not a duration such as 90s or 10m; using 0s: the gang may evict others at once"},
	} {
		want := parsed{Spec: defaults(2)}
		if c.problem != "" {
			want.Problems = []string{fmt.Sprintf("%s: %q%s", c.key, c.value, c.problem)}
		}
		if diff := cmp.Diff(want, parsedOf(nil, podMeta{Annotations: values{minKey: "2", c.key: c.value}})); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", c.key, c.value, diff)
		}
	}
}
