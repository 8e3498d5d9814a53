package keys

import (
	"slices"
	"strings"

	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
)

// Prefixes of keys. All keys under Prefix are this project's. Those under KoordinatorPrefix are read here, but others
// may be Koordinator's own.
const (
	Prefix            = v1alpha1.GroupName + "/"
	KoordinatorPrefix = "gang.scheduling.koordinator.sh/"
)

// Object is a kind of object that carries keys.
type Object string

// The objects. Owner is whatever makes pods from a template; its own keys mean nothing, those of the template are the
// pods'.
const (
	Pod                 Object = "pods"
	PodGroup            Object = "PodGroups"
	Owner               Object = "workloads"
	Namespace           Object = "namespaces"
	Node                Object = "nodes"
	Reservation         Object = "Reservations"
	PodMigration        Object = "PodMigrations"
	ProvisioningRequest Object = "ProvisioningRequests"
	PodTemplate         Object = "PodTemplates"
)

// Key is a label or an annotation.
type Key struct {
	Name string
	// AnnotationOf and LabelOf are the objects on which it has an effect.
	AnnotationOf, LabelOf []Object
	Value                 Value
}

// Table has all keys, in the order of their documentation.
var Table = []Key{
	// How a pod joins a gang.
	{Name: v1alpha1.GangNameAnnotation, AnnotationOf: []Object{Pod, ProvisioningRequest}},
	{Name: v1alpha1.GangAnnotation, AnnotationOf: []Object{Pod, Namespace},
		Value: oneOf(v1alpha1.GangOwner, v1alpha1.GangOwnerPart)},

	// What a gang is.
	{Name: v1alpha1.MinAvailableAnnotation, AnnotationOf: gangs, Value: integer(1, MaxCount)},
	{Name: v1alpha1.TotalNumberAnnotation, AnnotationOf: gangs, Value: integer(1, MaxCount)},
	{Name: v1alpha1.ModeAnnotation, AnnotationOf: gangs, Value: oneOf(v1alpha1.ModeStrict, v1alpha1.ModeNonStrict)},
	{Name: v1alpha1.WaitingTimeAnnotation, AnnotationOf: gangs,
		Value: Value{Kind: Duration, Want: "a positive duration such as 90s or 1h"}},
	{Name: v1alpha1.GroupsAnnotation, AnnotationOf: gangs, Value: Value{
		Kind: Pattern, Want: `a JSON list of "namespace/name"`, MaxItems: MaxGroups,
		Pattern: `""|` + list(`"`+name+`/`+name+`"`)}},
	{Name: v1alpha1.MatchPolicyAnnotation, AnnotationOf: gangs,
		Value: oneOf(v1alpha1.MatchOnceSatisfied, v1alpha1.MatchOnlyWaiting, v1alpha1.MatchWaitingAndRunning)},
	{Name: v1alpha1.RequiredTopologyAnnotation, AnnotationOf: placed, Value: labelKey},
	{Name: v1alpha1.PreferredTopologyAnnotation, AnnotationOf: placed, Value: labelKey},
	{Name: v1alpha1.TopologyScopeAnnotation, AnnotationOf: gangs, Value: oneOf(v1alpha1.TopologyScopeGroup)},
	{Name: v1alpha1.TopologySlicesAnnotation, AnnotationOf: placed, Value: Value{
		Kind: Pattern,
		Want: `a JSON list of at most 3 {"topology": KEY, "size": N}, coarsest first, ` +
			`each size a divisor of the one before`,
		Pattern: list(slice + `|` + sliceReversed), MaxItems: 2 * MaxSlices}},
	{Name: v1alpha1.TopologySpreadAnnotation, AnnotationOf: placed, Value: oneOf(v1alpha1.TopologySpreadEven)},
	{Name: v1alpha1.NetworkTopologySpecAnnotation, AnnotationOf: placed, Value: Value{
		Kind: Pattern, Want: `a JSON object such as {"gatherStrategy":[{"layer":"RackLayer","strategy":"PreferGather"}]}`,
		Pattern: space + `\{.*"gatherStrategy"` + space + `:` + space + `\[` + space + `\{.*\}` + space + `\].*\}` + space}},
	{Name: v1alpha1.NetworkTopologyIndexAnnotation, AnnotationOf: []Object{Pod}, Value: integer(0, MaxCount-1)},
	{Name: v1alpha1.StagesAnnotation, AnnotationOf: gangs, Value: Value{
		Kind: Pattern, Want: "a list of numbers of members, such as 2,1, that make up the minimum", MaxItems: MaxStages,
		Pattern: space + count + space + `(,` + space + count + space + `)*`}},
	{Name: v1alpha1.PreemptionDelayAnnotation, AnnotationOf: gangs,
		Value: Value{Kind: Duration, Zero: true, Want: "a duration such as 90s or 10m"}},
	{Name: v1alpha1.EvictByAnnotation, AnnotationOf: []Object{Pod, PodGroup, Namespace},
		Value: oneOf(v1alpha1.EvictByDelete, v1alpha1.EvictBySuspend)},
	{Name: v1alpha1.EvictedAnnotation, AnnotationOf: []Object{Owner, PodGroup}},
	{Name: v1alpha1.MinByRoleAnnotation, AnnotationOf: gangs, Value: Value{
		Kind: Pattern, Want: "a JSON object from role to a minimum of 0 to 100000",
		Pattern: object(`"` + labelValue + `"` + space + `:` + space + `(0|` + number + `)`)}},
	{Name: v1alpha1.RoleLabel, LabelOf: []Object{Pod}},
	{Name: v1alpha1.QueueLabel, LabelOf: gangs, AnnotationOf: []Object{Namespace}},
	{Name: v1alpha1.TimeoutAnnotation, AnnotationOf: []Object{Pod}},

	// Reservations and moves.
	{Name: v1alpha1.ReservationAnnotation, AnnotationOf: []Object{Pod}},
	{Name: v1alpha1.ReservationAllocatedAnnotation, AnnotationOf: []Object{Pod}},
	{Name: v1alpha1.ReservationMarksAnnotation, AnnotationOf: []Object{Node}},
	{Name: v1alpha1.MigrationAnnotation, AnnotationOf: []Object{PodGroup}, LabelOf: []Object{Reservation}},
	{Name: v1alpha1.InPlaceOfAnnotation, AnnotationOf: []Object{Pod, Reservation}},
	{Name: v1alpha1.WhyAnnotation, AnnotationOf: []Object{PodMigration}},
	{Name: v1alpha1.PlanLabel, LabelOf: []Object{PodMigration, Reservation}},

	// Requests for nodes.
	{Name: v1alpha1.ProvisioningRequestLabel, LabelOf: []Object{Pod, ProvisioningRequest, PodTemplate}},
	{Name: v1alpha1.SchedulerNameAnnotation, AnnotationOf: []Object{ProvisioningRequest}},

	// GPU cards.
	{Name: v1alpha1.GPUCardsAnnotation, AnnotationOf: []Object{Node}},
	{Name: v1alpha1.GPUCardAnnotation, AnnotationOf: []Object{Pod}},
	{Name: v1alpha1.GPUCardMemoryAnnotation, AnnotationOf: []Object{Pod}},
}

// gangs carry what a gang is; placed also carry where its members go.
var (
	gangs  = []Object{Pod, PodGroup}
	placed = []Object{Pod, PodGroup, Reservation}
)

// Find returns a key of the table.
func Find(name string) (Key, bool) {
	at := slices.IndexFunc(Table, func(k Key) bool { return k.Name == name })
	if at < 0 {
		return Key{}, false
	}
	return Table[at], true
}

// ValueOf returns what a key of the table takes.
func ValueOf(name string) Value {
	key, _ := Find(name)
	return key.Value
}

// Where says on which objects a key has an effect.
func (k Key) Where() string {
	var parts []string
	if len(k.AnnotationOf) > 0 {
		parts = append(parts, "an annotation of "+join(k.AnnotationOf))
	}
	if len(k.LabelOf) > 0 {
		parts = append(parts, "a label of "+join(k.LabelOf))
	}
	return strings.Join(parts, ", and ")
}

func join(objects []Object) string {
	names := make([]string, len(objects))
	for i, object := range objects {
		names[i] = string(object)
	}
	if last := len(names) - 1; last > 0 {
		return strings.Join(names[:last], ", ") + " and " + names[last]
	}
	return names[0]
}
