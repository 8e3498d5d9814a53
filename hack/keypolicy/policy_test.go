package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/rules/gangspec"
	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
)

// oldest is what an API server of the oldest supported minor version, 1.35, takes of expressions that are new to it.
var oldest = version.MajorMinor(1, 34)

// policy is a policy as the API server compiles it, with its library.
type policy struct {
	*testing.T
	validator validating.Validator
}

func compile(t *testing.T, name string) policy {
	t.Helper()
	at := slices.IndexFunc(carriers, func(c carrier) bool { return c.name == name })
	text, err := yaml.Marshal(carriers[at].policy())
	if err != nil {
		t.Fatal(err)
	}
	p := &admissionv1.ValidatingAdmissionPolicy{}
	if err := yaml.UnmarshalStrict(text, p); err != nil {
		t.Fatal(err)
	}
	compiler, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(oldest))
	if err != nil {
		t.Fatal(err)
	}
	const mode = environment.NewExpressions
	with := plugincel.OptionalVariableDeclarations{HasAuthorizer: true}
	for _, variable := range p.Spec.Variables {
		result := compiler.CompileAndStoreVariable(&validating.Variable{Name: variable.Name, Expression: variable.Expression}, with, mode)
		if result.Error != nil {
			t.Fatalf("variable %s: %v", variable.Name, result.Error)
		}
	}
	var conditions, validations, messages []plugincel.ExpressionAccessor
	for i := range p.Spec.MatchConditions {
		conditions = append(conditions, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
	}
	for i := range p.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: p.Spec.Validations[i].Expression, Message: p.Spec.Validations[i].Message})
		messages = append(messages, &validating.MessageExpressionCondition{MessageExpression: p.Spec.Validations[i].MessageExpression})
	}
	fail := admissionv1.Fail // so that what cannot be evaluated shows
	matcher := matchconditions.NewMatcher(compiler.CompileCondition(conditions, with, mode), &fail, "policy", "validate", p.Name)
	return policy{t, validating.NewValidator(compiler.CompileCondition(validations, with, mode), matcher,
		compiler.CompileCondition(nil, with, mode), compiler.CompileCondition(messages, plugincel.OptionalVariableDeclarations{}, mode), &fail, nil)}
}

// refuses returns why a version of an object is refused; empty if it is not. old is nil where it is created.
func (p policy) refuses(old, object map[string]any) string {
	p.Helper()
	versioned := &admission.VersionedAttributes{VersionedObject: admission.NewLazyObject(&unstructured.Unstructured{Object: object})}
	operation, before := admission.Create, runtime.Object(nil)
	if old != nil {
		operation, before = admission.Update, &unstructured.Unstructured{Object: old}
		versioned.VersionedOldObject = admission.NewLazyObject(before)
	}
	versioned.VersionedKind = schema.FromAPIVersionAndKind("v1", "Any")
	versioned.Attributes = admission.NewAttributesRecord(&unstructured.Unstructured{Object: object}, before, versioned.VersionedKind, "ns", "name",
		schema.GroupVersionResource{Version: "v1", Resource: "any"}, "", operation, nil, false, nil)
	result := p.validator.Validate(p.Context(), schema.GroupVersionResource{Version: "v1", Resource: "any"}, versioned, nil, &v1.Namespace{}, celconfig.RuntimeCELCostBudget, nil)
	var why []string
	for _, decision := range result.Decisions {
		if decision.Evaluation == validating.EvalError {
			p.Fatalf("evaluating the policy: %s", decision.Message)
		}
		if decision.Action == validating.ActionDeny {
			why = append(why, decision.Message)
		}
	}
	return strings.Join(why, "\n")
}

func meta(annotations map[string]string) map[string]any {
	all := map[string]any{}
	for key, value := range annotations {
		all[key] = value
	}
	return map[string]any{"metadata": map[string]any{"name": "name", "annotations": all}}
}

// values are good and bad ones. Each is tried as the value of each key.
var values = []string{
	"", " ", "0", "1", "3", "007", "99999", "100000", "100001", "4294967296", "-1", "+1", "1.5", "1e3", "0x3", "three", "3 ", "٣",
	"Owner", "owner", "OwnerPart", "Strict", "strict", "NonStrict", "group", "Group", "Even", "even", "once-satisfied", "only-waiting", "waiting-and-running", "never",
	"90s", "1h", "1h30m", "1.5h", ".5s", "1.s", "500ms", "1µs", "0s", "-1s", "+1h", "90", "1d", "1 h", "1h 30m", "h", "99999h", "9999999999h", strings.Repeat("99999h", 20), "1000000h",
	"rack", "topology.kubernetes.io/zone", "a b", "a/b/c", "/rack", "rack/", "-rack", "UPPER/rack", strings.Repeat("r", 63), strings.Repeat("r", 64), strings.Repeat("p", 254) + "/rack", "räck",
	`""`, "[]", " [ ] ", `["a/x"]`, `["a/x", "b/y"]`, `["a"]`, `["a/x",]`, `["A/x"]`, `["a/x" "b/y"]`, "[1]", "null", `{"a":"b"}`, `["a/` + "\\u0078" + `"]`,
	"[" + strings.TrimSuffix(strings.Repeat(`"a/x",`, 64), ",") + "]", "[" + strings.TrimSuffix(strings.Repeat(`"a/x",`, 65), ",") + "]", `["` + strings.Repeat("a", 64) + `/x"]`,
	"{}", `{"ps":1}`, `{"ps":1, "worker": 4}`, `{"ps":0}`, `{"ps":null}`, `{"ps":-1}`, `{"ps":1.5}`, `{"ps":"1"}`, `{"":1}`, `{"a b":1}`, `{"ps":100001}`, `{"ps":1,}`, `{"ps":01}`, `{"` + strings.Repeat("r", 64) + `":1}`,
	`[{"topology":"rack","size":4}]`, `[{"size":4,"topology":"rack"}]`, `[ {"topology": "block", "size": 8}, {"topology": "rack", "size": 4} ]`, `[{"topology":"block","size":8},{"topology":"rack","size":3}]`,
	`[{"topology":"rack","size":8},{"topology":"rack","size":4}]`, `[{"topology":"rack"}]`, `[{"size":4}]`, `[{"topology":"a b","size":4}]`, `[{"topology":"rack","size":0}]`, `[{"topology":"rack","size":"4"}]`,
	`[{"topology":"rack","size":4,"more":1}]`, `[{"Topology":"rack","Size":4}]`, `{"topology":"rack","size":4}`, `[{"topology":"a","size":8},{"topology":"b","size":4},{"topology":"c","size":2}]`,
	`[{"topology":"a","size":8},{"topology":"b","size":4},{"topology":"c","size":2},{"topology":"d","size":1}]`,
	`{"gatherStrategy":[{"layer":"RackLayer","strategy":"PreferGather"}]}`, `{"gatherStrategy": [{"layer": "RackLayer", "strategy": "MustGather"}], "more": 1}`, `{"gatherStrategy":[]}`, `{"gather":[]}`,
	`{"gatherStrategy":[{"layer":"RackLayer","strategy":"Gather"}]}`, `{"gatherStrategy":[{"layer":"Rack","strategy":"MustGather"}]}`, `{"gatherStrategy":{"layer":"RackLayer"}}`,
	"2,1", "2, 1", "2,1,", ",2", "2;1", "0,3", "1,1", strings.TrimSuffix(strings.Repeat("1,", 100), ","), strings.TrimSuffix(strings.Repeat("1,", 101), ","),
}

type said struct{ key, value string }

// exceptions are where the policy and the parser do not agree, and why.
var exceptions = map[said]string{}

func init() {
	except := func(reason, key string, values ...string) {
		for _, value := range values {
			exceptions[said{key, value}] = reason
		}
	}
	const (
		depends = "whether it can be used depends on other keys, the number of members, or the scheduler's configuration"
		content = "an expression cannot compare the parts of a JSON text"
		unusual = "valid JSON that nobody writes, which a pattern does not know"
		long    = "longer than eleven years"
		length  = "a pattern does not count letters"
	)
	except(depends, v1alpha1.TotalNumberAnnotation, "1")
	except(depends, v1alpha1.StagesAnnotation, "1")
	except(depends, v1alpha1.MinByRoleAnnotation, `{"ps":1, "worker": 4}`)
	except(depends, v1alpha1.NetworkTopologySpecAnnotation, `{"gatherStrategy":[{"layer":"Rack","strategy":"MustGather"}]}`)
	except(content, v1alpha1.NetworkTopologySpecAnnotation, `{"gatherStrategy":[{"layer":"RackLayer","strategy":"Gather"}]}`)
	except(content, v1alpha1.TopologySlicesAnnotation, `[{"topology":"block","size":8},{"topology":"rack","size":3}]`, `[{"topology":"rack","size":8},{"topology":"rack","size":4}]`)
	except(unusual, v1alpha1.TopologySlicesAnnotation, `[{"topology":"rack","size":4,"more":1}]`, `[{"Topology":"rack","Size":4}]`)
	except(unusual, v1alpha1.GroupsAnnotation, `["a/`+"\\u0078"+`"]`)
	except(length, v1alpha1.GroupsAnnotation, `["`+strings.Repeat("a", 64)+`/x"]`)
	except(length, v1alpha1.MinByRoleAnnotation, `{"`+strings.Repeat("r", 64)+`":1}`)
	except(long, v1alpha1.WaitingTimeAnnotation, "1000000h", strings.Repeat("99999h", 20))
	except(long, v1alpha1.PreemptionDelayAnnotation, "1000000h", strings.Repeat("99999h", 20))
}

// faults reports whether the parser finds fault with a value of a key.
func faults(t *testing.T, key, value string) bool {
	t.Helper()
	switch key {
	case v1alpha1.GangAnnotation:
		return gangspec.AsksUnknownGang(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{key: value}}})
	case v1alpha1.NetworkTopologyIndexAnnotation:
		_, err := keys.ValueOf(key).ParseInteger(value) // as ranks are read
		return err != nil && value != ""
	}
	annotations := map[string]string{v1alpha1.MinAvailableAnnotation: "2"}
	annotations[key] = value
	defaults := gangspec.Defaults{WaitTime: time.Minute, Topology: gangspec.Topology{Levels: []gangspec.TopologyLevel{{Key: "rack", Name: "RackLayer"}}}}
	_, problems := gangspec.Parse(gangspec.Key{Namespace: "ns", Name: "train"}, nil, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}}, defaults)
	return slices.ContainsFunc(problems, func(p gangspec.KeyProblem) bool { return p.Key == key })
}

func TestPolicyAgreesWithTheParser(t *testing.T) {
	pods := compile(t, "pods")
	tried, unused := 0, maps.Clone(exceptions)
	for _, key := range keys.Table {
		if key.Value.Kind == keys.Text || !slices.Contains(key.AnnotationOf, keys.Pod) {
			continue
		}
		for _, value := range values {
			tried++
			why, bad := pods.refuses(nil, meta(map[string]string{key.Name: value})), faults(t, key.Name, value)
			_, excepted := exceptions[said{key.Name, value}]
			delete(unused, said{key.Name, value})
			if (bad != (why != "")) != excepted {
				t.Errorf("%s: %q: the parser finds fault with it: %t; the policy says %q; it is an exception: %t", key.Name, value, bad, why, excepted)
			}
			if why != "" && !strings.Contains(why, key.Name+`: "`) || why != "" && !strings.Contains(why, `" is not `+key.Value.Want) {
				t.Errorf("%s: %q is refused as %q, which lacks the key, the value or what is accepted", key.Name, value, why)
			}
		}
	}
	if tried < 1000 {
		t.Errorf("only %d values were tried", tried)
	}
	for one := range unused {
		t.Errorf("%s: %q is not tried, and need not be an exception", one.key, one.value)
	}
}

func TestWhatIsRefused(t *testing.T) {
	const gang, topology, typo = v1alpha1.GangAnnotation, v1alpha1.RequiredTopologyAnnotation, "scheduling.lockstep.dev/required-topolgy"
	bad := meta(map[string]string{gang: "owner"})
	nothing, good := meta(nil), meta(map[string]string{gang: v1alpha1.GangOwner})
	withOwner := meta(map[string]string{gang: "owner"})
	withOwner["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{"kind": "Job", "name": "j", "controller": true}}
	labelled := map[string]any{"metadata": map[string]any{"labels": map[string]any{gang: v1alpha1.GangOwner, v1alpha1.QueueLabel: "a"}}}
	with := func(object map[string]any, spec map[string]any) map[string]any {
		all := maps.Clone(object)
		all["spec"] = spec
		return all
	}
	template := func(pod map[string]any) map[string]any { return map[string]any{"template": pod} }
	for sentence, c := range map[string]struct {
		policy      string
		old, object map[string]any
		want        []string // what the refusal has in it; none for no refusal
	}{
		"a good pod":                    {"pods", nil, good, nil},
		"a bad value":                   {"pods", nil, bad, []string{gang + `: "owner" is not one of Owner, OwnerPart`}},
		"a misspelled key":              {"pods", nil, meta(map[string]string{typo: "rack"}), []string{typo + " is not a key of Lockstep: did you mean " + topology + "?"}},
		"a key like no other":           {"pods", nil, meta(map[string]string{"scheduling.lockstep.dev/colour": "x"}), []string{"scheduling.lockstep.dev/colour is not a key of Lockstep; docs/keys.md has all"}},
		"ours, by Koordinator's prefix": {"pods", nil, meta(map[string]string{"gang.scheduling.koordinator.sh/required-topology": "rack"}), []string{"gang.scheduling.koordinator.sh/required-topology is not a key of Lockstep: did you mean " + topology + "?"}},
		"Koordinator's, by our prefix":  {"pods", nil, meta(map[string]string{"scheduling.lockstep.dev/min-available": "2"}), []string{"scheduling.lockstep.dev/min-available is not a key of Lockstep: did you mean " + v1alpha1.MinAvailableAnnotation + "?"}},
		"both":                          {"pods", nil, meta(map[string]string{typo: "rack", gang: "owner"}), []string{typo, gang + `: "owner"`}},
		"a label that is none":          {"pods", nil, labelled, []string{gang + " has no effect as a label of pods: it is an annotation of pods and namespaces"}},
		"a key of Koordinator's own":    {"pods", nil, meta(map[string]string{"gang.scheduling.koordinator.sh/other": "x"}), nil},
		"a pod of its own scheduler":    {"pods", nil, with(bad, map[string]any{"schedulerName": koordinator}), nil},
		"a pod that a controller made":  {"pods", nil, withOwner, nil},
		"a change beside a bad value":   {"pods", bad, with(bad, map[string]any{"nodeName": "n"}), nil},
		"a change to another one":       {"pods", good, bad, []string{gang}},
		"a long value":                  {"pods", nil, meta(map[string]string{topology: strings.Repeat("x", 100000)}), []string{strings.Repeat("x", 200) + `..." is not a node label key`}},
		"a PodGroup with a pod's key":   {"podgroups", nil, good, []string{gang + " has no effect as an annotation of PodGroups"}},
		"a PodGroup with its own":       {"podgroups", nil, meta(map[string]string{topology: "rack"}), nil},
		"a namespace":                   {"namespaces", nil, good, nil},
		"a namespace with a bad one":    {"namespaces", nil, bad, []string{`"owner" is not one of Owner`}},
		"a Job with its pods' keys":     {"workloads", nil, with(good, template(nothing)), []string{gang + " has no effect as an annotation of workloads: it is an annotation of pods and namespaces; keys of pods go on the pod template"}},
		"a Job with a bad template":     {"workloads", nil, with(nothing, template(bad)), []string{`"owner" is not one of Owner`}},
		"a Job with a good template":    {"workloads", nil, with(nothing, template(good)), nil},
		"a Job without any":             {"workloads", nil, with(nothing, template(nothing)), nil},
		"a CronJob":                     {"cronjobs", nil, with(nothing, map[string]any{"jobTemplate": with(nothing, template(bad))}), []string{`"owner" is not`}},
		"a CronJob of Jobs with keys":   {"cronjobs", nil, with(nothing, map[string]any{"jobTemplate": with(good, template(nothing))}), []string{"keys of pods go on the pod template"}},
		"a JobSet": {"jobsets", nil, with(nothing, map[string]any{"replicatedJobs": []any{
			map[string]any{"template": with(nothing, template(good))}, map[string]any{"template": with(nothing, template(bad))}}}), []string{`"owner" is not`}},
		"a JobSet without Jobs": {"jobsets", nil, with(bad, map[string]any{}), nil},
		"a LeaderWorkerSet":     {"leaderworkersets", nil, with(nothing, map[string]any{"leaderWorkerTemplate": map[string]any{"workerTemplate": good, "leaderTemplate": bad}}), []string{`"owner" is not`}},
		"one without leaders":   {"leaderworkersets", nil, with(nothing, map[string]any{"leaderWorkerTemplate": map[string]any{"workerTemplate": good}}), nil},
		"a Reservation":         {"reservations", nil, with(meta(map[string]string{topology: "a b"}), template(bad)), []string{topology + `: "a b"`, `"owner" is not`}},
	} {
		t.Run(sentence, func(t *testing.T) {
			why := compile(t, c.policy).refuses(c.old, c.object)
			if len(c.want) == 0 && why != "" {
				t.Errorf("it is refused: %s", why)
			}
			for _, want := range c.want {
				if !strings.Contains(why, want) {
					t.Errorf("the refusal is %q, want %q in it", why, want)
				}
			}
		})
	}
}

// TestBudget: what the API server allows is enough for an object with all keys, each as long as annotations may be.
func TestBudget(t *testing.T) {
	for _, c := range carriers {
		annotations := map[string]string{}
		for _, key := range keys.Table {
			annotations[key.Name] = strings.Repeat("[", 1<<18/len(keys.Table))
		}
		for i := range 200 {
			annotations[fmt.Sprintf("%smany-%d", keys.Prefix, i)] = "x"
		}
		object := meta(annotations)
		object["spec"] = map[string]any{"template": meta(annotations), "jobTemplate": map[string]any{"spec": map[string]any{"template": meta(annotations)}},
			"leaderWorkerTemplate": map[string]any{"workerTemplate": meta(annotations)}}
		if why := compile(t, c.name).refuses(nil, object); c.name != "jobsets" && why == "" {
			t.Errorf("%s: it is not refused", c.name)
		}
	}
}
