package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockstep-sh/lockstep/pkg/rules/keys"
)

// carrier is a kind of object, or several alike, that carries keys.
type carrier struct {
	name      string
	groups    []string
	resources []string
	// own are its parts with keys of its own, as a list in CEL, and kind whose keys they are; templates likewise of pods.
	// ROOT is the object.
	own, templates string
	kind           keys.Object
}

var carriers = []carrier{
	{name: "pods", groups: []string{""}, resources: []string{"pods"}, templates: "[ROOT]"},
	{name: "podgroups", groups: []string{"scheduling.x-k8s.io", "scheduling.k8s.io"}, resources: []string{"podgroups"},
		own: "[ROOT]", kind: keys.PodGroup},
	{name: "namespaces", groups: []string{""}, resources: []string{"namespaces"}, own: "[ROOT]", kind: keys.Namespace},
	{name: "workloads", groups: []string{"batch", "apps"},
		resources: []string{"jobs", "deployments", "replicasets", "statefulsets"},
		own:       "[ROOT]", kind: keys.Owner, templates: "[ROOT.spec.template]"},
	{name: "cronjobs", groups: []string{"batch"}, resources: []string{"cronjobs"},
		own: "[ROOT, ROOT.spec.jobTemplate]", kind: keys.Owner, templates: "[ROOT.spec.jobTemplate.spec.template]"},
	{name: "jobsets", groups: []string{"jobset.x-k8s.io"}, resources: []string{"jobsets"}, kind: keys.Owner,
		own:       "[ROOT] + ROOT.spec.?replicatedJobs.orValue([]).map(j, j.template)",
		templates: "ROOT.spec.?replicatedJobs.orValue([]).map(j, j.template.spec.template)"},
	{name: "leaderworkersets", groups: []string{"leaderworkerset.x-k8s.io"}, resources: []string{"leaderworkersets"},
		own: "[ROOT]", kind: keys.Owner,
		templates: "[ROOT.spec.leaderWorkerTemplate.workerTemplate] + (has(ROOT.spec.leaderWorkerTemplate.leaderTemplate) ? [ROOT.spec.leaderWorkerTemplate.leaderTemplate] : [])"},
	{name: "reservations", groups: []string{"scheduling.lockstep.dev"}, resources: []string{"reservations"},
		own: "[ROOT]", kind: keys.Reservation, templates: "[ROOT.spec.template]"},
}

// koordinator is the name of Koordinator's scheduler, whose pods are not read here.
const koordinator = "koord-scheduler"

func (c carrier) fullName() string { return "keys-of-" + c.name + ".scheduling.lockstep.dev" }

func (c carrier) head(kind string) map[string]any {
	return map[string]any{"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": map[string]any{
		"name": c.fullName(), "labels": map[string]any{"app.kubernetes.io/part-of": "lockstep"}}}
}

func (c carrier) binding() map[string]any {
	binding := c.head("ValidatingAdmissionPolicyBinding")
	binding["spec"] = map[string]any{"policyName": c.fullName(), "validationActions": []string{"Deny"}}
	return binding
}

func (c carrier) policy() map[string]any {
	conditions := []map[string]any{
		expression("carries-keys", c.carriesKeys()),
		// What a controller makes is refused where its template is applied. The pods of one that was there before the policy
		// are left to the scheduler, which holds back those that must not run.
		expression("made-by-a-user", "!object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false))"),
	}
	if c.templates != "" {
		conditions = append(conditions, expression("not-for-koordinator",
			at(c.templates, "object")+".exists(t, t.?spec.?schedulerName.orValue('') != '"+koordinator+"')"))
	}
	variables := []map[string]any{expression("where", mapOf(func(k keys.Key) string { return k.Where() })),
		expression("accepted", mapOf(func(k keys.Key) string { return k.Value.Want }))}
	var validations []map[string]any
	for _, s := range c.sections() {
		for _, f := range forms {
			list := s.name + f.suffix
			faults := list + "Faults"
			variables = append(variables,
				expression(list+"Before", "oldObject == null ? [] :\n"+entries(at(s.parts, "oldObject"), f, "", "k + '=' + v")),
				expression(list, entries(at(s.parts, "object"), f, " && !(k + '=' + v in variables."+list+"Before)",
					"{'key': k, 'value': v}")),
				expression(faults, faultsOf(s.kind, f, "variables."+list)))
			validations = append(validations, map[string]any{
				"expression": "variables." + faults + ".size() == 0", "messageExpression": "variables." + faults + ".join('; ')",
				"message": "keys of Lockstep have no effect here, or bad values; docs/keys.md has what they take",
			})
		}
	}
	policy := c.head("ValidatingAdmissionPolicy")
	policy["spec"] = map[string]any{
		// The scheduler reads the keys again: a policy that cannot be evaluated must not keep pods out of the cluster.
		"failurePolicy": "Ignore",
		"matchConstraints": map[string]any{"resourceRules": []map[string]any{{
			"apiGroups": c.groups, "apiVersions": []string{"*"}, "operations": []string{"CREATE", "UPDATE"},
			"resources": c.resources}}},
		"matchConditions": conditions, "variables": variables, "validations": validations,
	}
	return policy
}

func expression(name, text string) map[string]any {
	return map[string]any{"name": name, "expression": text}
}

// at returns an expression for one version of the object, whose kind the API server need not know.
func at(expression, object string) string {
	return "(" + strings.ReplaceAll(expression, "ROOT", "dyn("+object+")") + ")"
}

// section is the parts of an object that have keys of one kind.
type section struct {
	name, parts string
	kind        keys.Object
}

func (c carrier) sections() (all []section) {
	if c.own != "" {
		all = append(all, section{"own", c.own, c.kind})
	}
	if c.templates != "" {
		all = append(all, section{"pod", c.templates, keys.Pod})
	}
	return all
}

// form is whether keys are annotations or labels.
type form struct {
	field, suffix, text string
	of                  func(keys.Key) []keys.Object
}

var forms = []form{
	{"annotations", "Annotations", "an annotation", func(k keys.Key) []keys.Object { return k.AnnotationOf }},
	{"labels", "Labels", "a label", func(k keys.Key) []keys.Object { return k.LabelOf }},
}

func ours(key string) string {
	return fmt.Sprintf("(%[1]s.startsWith('%[2]s') || %[1]s.startsWith('%[3]s'))", key, keys.Prefix,
		keys.KoordinatorPrefix)
}

// entries lists what is under the prefixes, in all parts.
func entries(parts string, f form, condition, item string) string {
	return fmt.Sprintf("%s.map(m, m.?metadata.?%s.orValue({}).transformList(k, v, %s%s, %s)).flatten()", parts, f.field,
		ours("k"), condition, item)
}

func (c carrier) carriesKeys() string {
	var all []string
	for _, s := range c.sections() {
		for _, f := range forms {
			all = append(all, fmt.Sprintf("%s.exists(m, m.?metadata.?%s.orValue({}).exists(k, %s))", at(s.parts, "object"),
				f.field, ours("k")))
		}
	}
	return strings.Join(all, " ||\n")
}

// faultsOf returns a list of what is wrong with the labels or annotations of one kind of object, as texts for users.
func faultsOf(kind keys.Object, f form, list string) string {
	var here []string
	var values strings.Builder
	for _, key := range keys.Table {
		if !slices.Contains(f.of(key), kind) {
			continue
		}
		here = append(here, quote(key.Name))
		if check := valid(key.Value, "e.value"); check != "" {
			fmt.Fprintf(&values, "e.key == %s ? %s :\n", quote(key.Name), check)
		}
	}
	// An owner may have the labels of its pods, too: tools give both the same.
	misplaced := fmt.Sprintf("e.key + ' has no effect as %s of %s: it is ' + variables.where[e.key]", f.text, kind)
	switch {
	case kind != keys.Owner:
	case f.field == "labels":
		misplaced = "''"
	default:
		misplaced += " + '; keys of pods go on the pod template'"
	}
	// Koordinator has keys that are not in the table.
	last := "''"
	if values.Len() > 0 {
		last = fmt.Sprintf(`e.value == '' || (
%strue) ? '' :
e.key + ': "' + %s + '" is not ' + variables.accepted[e.key]`, values.String(), clipped("e.value"))
	}
	return fmt.Sprintf(`%[1]s.map(e,
!(e.key in variables.where) ? (%[2]s in variables.where ? e.key + ' is not a key of Lockstep: did you mean ' + %[2]s + '?' :
e.key.startsWith('%[3]s') ? %[4]s : '') :
!(e.key in [%[5]s]) ? %[6]s :
%[7]s).filter(fault, fault != '')`, list, underOtherPrefix, keys.Prefix, unknown, strings.Join(here, ", "), misplaced, last)
}

// underOtherPrefix is a key with the other one of the prefixes.
var underOtherPrefix = fmt.Sprintf("(e.key.startsWith('%[1]s') ? '%[2]s' + e.key.substring(%[3]d) : '%[1]s' + e.key.substring(%[4]d))",
	keys.Prefix, keys.KoordinatorPrefix, len(keys.Prefix), len(keys.KoordinatorPrefix))

// alike is how many letters of a misspelled key have to be right, from the first: those that begin with these are
// named.
const alike = 4

// unknown is a text about a key that is none, with those that begin like it.
var unknown = fmt.Sprintf(`[variables.where.filter(k, k.startsWith(e.key.size() < %[1]d ? e.key : e.key.substring(0, %[1]d)))].map(near,
e.key + ' is not a key of Lockstep' + (near.size() == 0 ? '; docs/keys.md has all' : ': did you mean ' + near.join(' or ') + '?'))[0]`, len(keys.Prefix)+alike)

// mapOf returns a map from all keys to a text about them.
func mapOf(text func(keys.Key) string) string {
	var fields []string
	for _, key := range keys.Table {
		if value := text(key); value != "" {
			fields = append(fields, quote(key.Name)+": "+quote(value))
		}
	}
	return "{" + strings.Join(fields, ",\n") + "}"
}

// longest is as much of a value as can be used. It bounds what the expressions cost.
const longest = 32768

// valid returns an expression that says whether a key takes a value; empty if it takes any.
func valid(v keys.Value, value string) string {
	switch v.Kind {
	case keys.Enum:
		names := make([]string, len(v.OneOf))
		for i, name := range v.OneOf {
			names[i] = quote(name)
		}
		return fmt.Sprintf("%s in [%s]", value, strings.Join(names, ", "))
	case keys.Integer:
		return fmt.Sprintf("%[1]s.matches('^0*[0-9]{1,9}$') && int(%[1]s) >= %[2]d && int(%[1]s) <= %[3]d", value,
			v.Min, v.Max)
	case keys.Duration:
		compare := ">"
		if v.Zero {
			compare = ">="
		}
		return fmt.Sprintf("%[1]s.size() < 100 && %[1]s.matches(r'%[2]s') && duration(%[1]s) %[3]s duration('0s')", value,
			durations, compare)
	case keys.LabelKey:
		return fmt.Sprintf("!format.qualifiedName().validate(%s).hasValue()", value)
	case keys.Pattern:
		check := fmt.Sprintf("%[1]s.size() <= %[2]d && %[1]s.matches(r'(?s)^(%[3]s)$')", value, longest, v.Pattern)
		if v.MaxItems > 0 {
			check += fmt.Sprintf(" && %s.split(',').size() <= %d", value, v.MaxItems)
		}
		return check
	}
	return ""
}

// durations are those of Go that are less than the longest.
var durations = strings.ReplaceAll(`^[+-]?(0|((N{1,5}|N{0,5}[.]N{1,9}|N{1,5}[.]N{0,9})h|(N{1,7}|N{0,7}[.]N{1,9}|N{1,7}[.]N{0,9})m|(N{1,9}|N{0,9}[.]N{1,9}|N{1,9}[.]N{0,9})(s|ms|us|µs|μs|ns)){1,8})$`, "N", "[0-9]")

// mostShown is how much of a value a message shows.
const mostShown = 200

func clipped(value string) string {
	return fmt.Sprintf("(%[1]s.size() <= %[2]d ? %[1]s : %[1]s.substring(0, %[2]d) + '...')", value, mostShown)
}

func quote(text string) string { return "'" + escape(text) + "'" }

func escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text)
}
