package validation

import (
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/lockstep-sh/lockstep/apis/config"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

func pools(path *field.Path, list []config.Pool) field.ErrorList {
	var errs field.ErrorList
	seen := sets.New[string]()
	for i, pool := range list {
		at := path.Index(i)
		errs = append(errs, poolName(at.Child("name"), pool.Name, seen)...)
		errs = append(errs, nodeSelector(at.Child("nodeSelector"), pool.NodeSelector, i == len(list)-1)...)
		for j, toleration := range pool.Tolerations {
			errs = append(errs, oneToleration(at.Child("tolerations").Index(j), toleration)...)
		}
	}
	return errs
}

func poolName(path *field.Path, name string, seen sets.Set[string]) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Required(path, "name the pool; queues say by it what they have there")}
	case name == v1alpha1.DefaultPool:
		return field.ErrorList{field.Invalid(path, name,
			"is the pool of the nodes that no other matches; for tolerations of its own end the list with a pool that has "+
				"nodeSelector: {}")}
	case seen.Has(name):
		return field.ErrorList{field.Duplicate(path, name)}
	}
	seen.Insert(name)
	var errs field.ErrorList
	for _, problem := range utilvalidation.IsDNS1123Label(name) {
		errs = append(errs, field.Invalid(path, name, problem))
	}
	return errs
}

func nodeSelector(path *field.Path, selector *metav1.LabelSelector, last bool) field.ErrorList {
	switch {
	case selector == nil:
		return field.ErrorList{field.Required(path, "say which nodes are in the pool; {} matches all")}
	case len(selector.MatchLabels)+len(selector.MatchExpressions) == 0 && !last:
		return field.ErrorList{field.Invalid(path, "{}",
			"matches all nodes, and leaves none to the pools that follow; put it last")}
	}
	return metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, path)
}

// operators of tolerations.
var operators = []v1.TolerationOperator{"", v1.TolerationOpEqual, v1.TolerationOpExists, v1.TolerationOpGt,
	v1.TolerationOpLt}

func oneToleration(path *field.Path, t v1.Toleration) field.ErrorList {
	var errs field.ErrorList
	if !slices.Contains(operators, t.Operator) {
		errs = append(errs, field.NotSupported(path.Child("operator"), t.Operator, operators[1:]))
	}
	if effects := []v1.TaintEffect{v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule,
		v1.TaintEffectNoExecute}; t.Effect != "" && !slices.Contains(effects, t.Effect) {
		errs = append(errs, field.NotSupported(path.Child("effect"), t.Effect, effects))
	}
	switch {
	case t.Key == "" && t.Operator != v1.TolerationOpExists:
		errs = append(errs, field.Invalid(path.Child("operator"), t.Operator,
			"must be Exists where key is empty, which then matches all taints"))
	case t.Key != "":
		for _, problem := range utilvalidation.IsQualifiedName(t.Key) {
			errs = append(errs, field.Invalid(path.Child("key"), t.Key, problem))
		}
	}
	switch t.Operator {
	case v1.TolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(path.Child("value"), t.Value, "must be empty where operator is Exists"))
		}
	case v1.TolerationOpGt, v1.TolerationOpLt:
		if _, err := strconv.ParseInt(t.Value, 10, 64); err != nil {
			errs = append(errs, field.Invalid(path.Child("value"), t.Value, "must be a whole number where operator is Gt or Lt"))
		}
	}
	if t.TolerationSeconds != nil {
		errs = append(errs, field.Invalid(path.Child("tolerationSeconds"), *t.TolerationSeconds,
			"must not be set: a node that pods leave after a time is not there to be shared"))
	}
	return errs
}
