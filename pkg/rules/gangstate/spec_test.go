package gangstate

import (
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

func parsedOf(object *Object, pod podMeta) parsed {
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
	return Spec{Min: minimum, Total: minimum, Mode: Strict, WaitTime: 10 * time.Minute, Policy: OnceSatisfied}
}

func with(spec Spec, change func(*Spec)) Spec {
	change(&spec)
	return spec
}

func TestParse(t *testing.T) {
	const notCount = ` is not a whole number from 1 to 100000; using `
	const heldBack = `nothing: the gang is held back until it has a minimum`
	for sentence, c := range map[string]struct {
		object *Object
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
				Min: 3, Total: 5, WaitTime: 90 * time.Second, WaitTimeSet: true, Mode: NonStrict, Groups: []Key{{"a", "x"}, {"b", "y"}},
				Policy: OnlyWaiting, MinByRole: map[string]int{"ps": 1, "worker": 2}, RequiredTopology: "example.com/rack", Layout: Layout{Levels: []Level{{Key: "example.com/row"}}},
			}},
		},
		"every field can be said by the PodGroup": {
			object: &Object{Min: 3, RoundSeconds: new(int32(90)), Annotations: values{
				totalKey: "5", modeKey: "NonStrict", groupsKey: `["a/x"]`, policyKey: "waiting-and-running",
				rolesKey: `{"ps":0}`, requiredKey: "rack", preferKey: "row",
			}},
			want: parsed{Spec: Spec{
				Min: 3, Total: 5, WaitTime: 10 * time.Minute, RoundTime: 90 * time.Second, Mode: NonStrict, Groups: []Key{{"a", "x"}},
				Policy: WaitingAndRunning, MinByRole: map[string]int{"ps": 0}, RequiredTopology: "rack", Layout: Layout{Levels: []Level{{Key: "row"}}},
			}},
		},
		"a preemption delay": {
			object: &Object{Min: 3, Annotations: values{v1alpha1.PreemptionDelayAnnotation: "90s"}},
			want:   parsed{Spec: with(defaults(3), func(s *Spec) { s.PreemptionDelay = 90 * time.Second })},
		},
		"a preemption delay below nothing": {
			pod: podMeta{Annotations: values{minKey: "3", v1alpha1.PreemptionDelayAnnotation: "-1s"}},
			want: parsed{Spec: defaults(3), Problems: []string{
				v1alpha1.PreemptionDelayAnnotation + `: "-1s" is not a duration such as 90s or 10m; using 0s: the gang may evict others at once`,
			}},
		},
		"the pod wins field by field": {
			object: &Object{Min: 3, RoundSeconds: new(int32(90)), Annotations: values{totalKey: "7", modeKey: "NonStrict", requiredKey: "rack"}},
			pod:    podMeta{Annotations: values{minKey: "4", waitKey: "1h", requiredKey: "zone"}},
			want: parsed{Spec: Spec{
				Min: 4, Total: 7, Mode: NonStrict, WaitTime: time.Hour, WaitTimeSet: true, RoundTime: 90 * time.Second, Policy: OnceSatisfied, RequiredTopology: "zone",
			}},
		},
		"the PodGroup's annotations win over its fields": {
			object: &Object{Min: 3, RoundSeconds: new(int32(90)), Annotations: values{minKey: "5", waitKey: "1h"}},
			want:   parsed{Spec: with(defaults(5), func(s *Spec) { s.WaitTime, s.WaitTimeSet, s.RoundTime = time.Hour, true, 90*time.Second })},
		},
		"an empty annotation of the pod asks for the default": {
			object: &Object{Min: 3, Annotations: values{modeKey: "NonStrict", groupsKey: `["a/x"]`, requiredKey: "rack", rolesKey: `{"ps":1}`, totalKey: "9", policyKey: "only-waiting"}},
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
		`groups may be "", a JSON "" or []`: {
			pod:  podMeta{Annotations: values{minKey: "2", groupsKey: `""`}},
			want: parsed{Spec: defaults(2)},
		},
		"an empty list of groups is alone": {
			pod:  podMeta{Annotations: values{minKey: "2", groupsKey: `[]`}},
			want: parsed{Spec: defaults(2)},
		},
		"a group of itself is alone": {
			pod:  podMeta{Annotations: values{minKey: "2", groupsKey: `["ns/train"]`}},
			want: parsed{Spec: defaults(2)},
		},
		"no roles are no roles": {
			pod:  podMeta{Annotations: values{minKey: "2", rolesKey: `{}`}},
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
			object: &Object{Min: 3},
			pod:    podMeta{Annotations: values{minKey: "-2"}},
			want:   parsed{Spec: defaults(3), Problems: []string{minKey + `: "-2"` + notCount + "3, the PodGroup's minimum"}},
		},
		"a bad minimum falls back to the PodGroup's annotation": {
			object: &Object{Annotations: values{minKey: "6"}},
			pod:    podMeta{Annotations: values{minKey: "2.5"}},
			want:   parsed{Spec: defaults(6), Problems: []string{minKey + `: "2.5"` + notCount + "6, the PodGroup's minimum"}},
		},
		"minimums are bounded": {
			pod:  podMeta{Annotations: values{minKey: "100001"}},
			want: parsed{Spec: defaults(0), Problems: []string{minKey + `: "100001"` + notCount + heldBack}},
		},
		"the PodGroup's minimum is bounded, too": {
			object: &Object{Min: 100001},
			want:   parsed{Spec: defaults(0), Problems: []string{`spec.minMember: "100001"` + notCount + heldBack}, OnObject: []string{"spec.minMember"}},
		},
		"a negative minimum of the PodGroup is told": {
			object: &Object{Min: -1},
			want:   parsed{Spec: defaults(0), Problems: []string{`spec.minMember: "-1"` + notCount + heldBack}, OnObject: []string{"spec.minMember"}},
		},
		"a bad annotation of the PodGroup falls back to its field": {
			object: &Object{Min: 3, Annotations: values{minKey: "many"}},
			want:   parsed{Spec: defaults(3), Problems: []string{minKey + `: "many"` + notCount + "3, the PodGroup's minimum"}, OnObject: []string{minKey}},
		},
		"what the pod overrides is not looked at": {
			object: &Object{Min: -1, RoundSeconds: new(int32(0)), Annotations: values{minKey: "many", modeKey: "loose"}},
			pod:    podMeta{Annotations: values{minKey: "2", waitKey: "5s", modeKey: "Strict"}},
			want:   parsed{Spec: with(defaults(2), func(s *Spec) { s.WaitTime, s.WaitTimeSet = 5*time.Second, true })},
		},
		"a total that is no number is the minimum": {
			pod:  podMeta{Annotations: values{minKey: "2", totalKey: "all"}},
			want: parsed{Spec: defaults(2), Problems: []string{totalKey + `: "all"` + notCount + "2, the minimum"}},
		},
		"a total below the minimum is the minimum": {
			pod:  podMeta{Annotations: values{minKey: "3", totalKey: "2"}},
			want: parsed{Spec: defaults(3), Problems: []string{totalKey + `: "2" is not at least the minimum; using 3, the minimum`}},
		},
		"a bad total without a minimum": {
			pod:  podMeta{Annotations: values{totalKey: "0"}},
			want: parsed{Spec: defaults(0), Problems: []string{totalKey + `: "0"` + notCount + "the minimum, once there is one"}},
		},
		"a bad mode is Strict": {
			pod:  podMeta{Annotations: values{minKey: "2", modeKey: "strict"}},
			want: parsed{Spec: defaults(2), Problems: []string{modeKey + `: "strict" is not one of Strict, NonStrict; using Strict`}},
		},
		"a bad mode of the PodGroup is the PodGroup's problem": {
			object: &Object{Annotations: values{modeKey: "strict"}},
			pod:    podMeta{Annotations: values{minKey: "2"}},
			want:   parsed{Spec: defaults(2), Problems: []string{modeKey + `: "strict" is not one of Strict, NonStrict; using Strict`}, OnObject: []string{modeKey}},
		},
		"a bad match policy is once-satisfied": {
			pod:  podMeta{Annotations: values{minKey: "2", policyKey: "never"}},
			want: parsed{Spec: defaults(2), Problems: []string{policyKey + `: "never" is not one of once-satisfied, only-waiting, waiting-and-running; using once-satisfied`}},
		},
		"a bad wait time is the default": {
			pod:  podMeta{Annotations: values{minKey: "2", waitKey: "60"}},
			want: parsed{Spec: defaults(2), Problems: []string{waitKey + `: "60" is not a positive duration such as 90s or 1h; using 10m0s, the default, for each round, without an end`}},
		},
		"a bad wait time of a NonStrict gang is that of such": {
			pod:  podMeta{Annotations: values{minKey: "2", modeKey: "NonStrict", waitKey: "60"}},
			want: parsed{Spec: with(defaults(2), func(s *Spec) { s.Mode = NonStrict }), Problems: []string{waitKey + `: "60" is not a positive duration such as 90s or 1h; using 10m0s, the default`}},
		},
		"a wait time is positive": {
			pod:  podMeta{Annotations: values{minKey: "2", waitKey: "-1s"}},
			want: parsed{Spec: defaults(2), Problems: []string{waitKey + `: "-1s" is not a positive duration such as 90s or 1h; using 10m0s, the default, for each round, without an end`}},
		},
		"a bad wait time of a gang that has time for its rounds is none": {
			object: &Object{RoundSeconds: new(int32(30))},
			pod:    podMeta{Annotations: values{minKey: "2", waitKey: "soon"}},
			want: parsed{
				Spec:     with(defaults(2), func(s *Spec) { s.RoundTime = 30 * time.Second }),
				Problems: []string{waitKey + `: "soon" is not a positive duration such as 90s or 1h; using none: rounds of 30s, as the PodGroup has it, without an end`},
			},
		},
		"operators write 0 for no time": {
			object: &Object{Min: 2, RoundSeconds: new(int32(0))},
			want:   parsed{Spec: defaults(2)},
		},
		"the time of rounds is not negative": {
			object: &Object{Min: 2, RoundSeconds: new(int32(-1))},
			want: parsed{
				Spec:     defaults(2),
				Problems: []string{`spec.scheduleTimeoutSeconds: "-1" is not a number of seconds, or 0 for none; using none: rounds have no time of their own`},
				OnObject: []string{"spec.scheduleTimeoutSeconds"},
			},
		},
		"groups that are no list are none": {
			pod:  podMeta{Annotations: values{minKey: "2", groupsKey: "a/x"}},
			want: parsed{Spec: defaults(2), Problems: []string{groupsKey + `: "a/x" is not a JSON list of "namespace/name"; using none: the gang is alone`}},
		},
		"one bad group spoils the list": {
			pod:  podMeta{Annotations: values{minKey: "2", groupsKey: `["a/x","y"]`}},
			want: parsed{Spec: defaults(2), Problems: []string{groupsKey + `: "[\"a/x\",\"y\"]" is not a JSON list of "namespace/name"; using none: the gang is alone`}},
		},
		"null is no list of groups": {
			pod:  podMeta{Annotations: values{minKey: "2", groupsKey: "null"}},
			want: parsed{Spec: defaults(2), Problems: []string{groupsKey + `: "null" is not a JSON list of "namespace/name"; using none: the gang is alone`}},
		},
		"more groups than can start together are none": {
			pod:  podMeta{Annotations: values{minKey: "2", groupsKey: "[" + strings.Repeat(`"a/x",`, maxTogether) + `"a/y"]`}},
			want: parsed{Spec: defaults(2), Problems: []string{Problem{Key: groupsKey, Value: "[" + strings.Repeat(`"a/x",`, maxTogether) + `"a/y"]`, Want: "a list of at most 64 gangs", Used: "none: the gang is alone"}.String()}},
		},
		"roles that are no object are none": {
			pod:  podMeta{Annotations: values{minKey: "2", rolesKey: "ps=1"}},
			want: parsed{Spec: defaults(2), Problems: []string{rolesKey + `: "ps=1" is not a JSON object from role to a minimum of 0 to 100000; using no minimum by role`}},
		},
		"null is no roles": {
			pod:  podMeta{Annotations: values{minKey: "2", rolesKey: "null"}},
			want: parsed{Spec: defaults(2), Problems: []string{rolesKey + `: "null" is not a JSON object from role to a minimum of 0 to 100000; using no minimum by role`}},
		},
		"null is no minimum of a role": {
			pod:  podMeta{Annotations: values{minKey: "2", rolesKey: `{"ps":null}`}},
			want: parsed{Spec: defaults(2), Problems: []string{rolesKey + `: "{\"ps\":null}" is not a JSON object from role to a minimum of 0 to 100000; using no minimum by role`}},
		},
		"the minimum of a role is not negative": {
			pod:  podMeta{Annotations: values{minKey: "2", rolesKey: `{"ps":-1}`}},
			want: parsed{Spec: defaults(2), Problems: []string{rolesKey + `: "{\"ps\":-1}" is not a JSON object from role to a minimum of 0 to 100000; using no minimum by role`}},
		},
		"a role is a label value": {
			pod:  podMeta{Annotations: values{minKey: "2", rolesKey: `{"a b":1}`}},
			want: parsed{Spec: defaults(2), Problems: []string{rolesKey + `: "{\"a b\":1}" is not a JSON object from role to a minimum of 0 to 100000; using no minimum by role`}},
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
			object: &Object{Min: 2, Annotations: values{v1alpha1.TopologyScopeAnnotation: "Group"}},
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
		"a network topology without a strategy": {
			pod: podMeta{Annotations: values{minKey: "2", v1alpha1.NetworkTopologySpecAnnotation: `{"gather":[]}`}},
			want: parsed{Spec: defaults(2), Problems: []string{
				v1alpha1.NetworkTopologySpecAnnotation + `: "{\"gather\":[]}" is not a JSON object with a gatherStrategy; using no topology`,
			}},
		},
		"the second pod of the scenario": {
			pod: podMeta{Annotations: values{minKey: "2", totalKey: "1", modeKey: "nonsense", waitKey: "nonsense", groupsKey: "nonsense"}},
			want: parsed{Spec: defaults(2), Problems: []string{
				totalKey + `: "1" is not at least the minimum; using 2, the minimum`,
				modeKey + `: "nonsense" is not one of Strict, NonStrict; using Strict`,
				waitKey + `: "nonsense" is not a positive duration such as 90s or 1h; using 10m0s, the default, for each round, without an end`,
				groupsKey + `: "nonsense" is not a JSON list of "namespace/name"; using none: the gang is alone`,
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

func TestBackoff(t *testing.T) {
	const s = time.Second
	type pauses []time.Duration
	for sentence, c := range map[string]struct {
		backoff Backoff
		want    pauses // after 1, 2, 3, 4 and a million failures
	}{
		"doubles up to the most":              {Backoff{s, 5 * s}, pauses{s, 2 * s, 4 * s, 5 * s, 5 * s}},
		"the most may be less than the first": {Backoff{2 * s, s}, pauses{s, s, s, s, s}},
		"none stays none":                     {Backoff{0, s}, pauses{0, 0, 0, 0, 0}},
		"a most without end does not overflow": {
			Backoff{1 << 61, 1<<63 - 1}, pauses{1 << 61, 1 << 62, 1<<63 - 1, 1<<63 - 1, 1<<63 - 1},
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			var got pauses
			for _, n := range []int{1, 2, 3, 4, 1000000} {
				got = append(got, c.backoff.after(n))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("pauses (-want +got):\n%s", diff)
			}
		})
	}
}
