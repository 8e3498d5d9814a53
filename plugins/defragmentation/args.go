package defragmentation

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/descheduler/pkg/api"

	"github.com/lockstep-sh/lockstep/apis/descheduler"
)

const (
	defaultResource  = v1.ResourceName("nvidia.com/gpu")
	defaultCoolDown  = 10 * time.Minute
	defaultHoldTime  = 10 * time.Minute
	defaultWaitedFor = 10 * time.Second
)

// SetDefaults sets the defaults of arguments.
func SetDefaults(object runtime.Object) {
	args, ok := object.(*descheduler.DefragmentationArgs)
	if !ok {
		return
	}
	args.NeedsApproval = args.NeedsApproval || args.DryRun
	args.ResourceType = cmp.Or(args.ResourceType, onlyResource(args), defaultResource)
	threshold := func(of *api.ResourceThresholds, percent api.Percentage) {
		if *of == nil {
			*of = api.ResourceThresholds{args.ResourceType: percent}
		}
	}
	threshold(&args.ProtectionThresholds, 100)
	threshold(&args.DefragmentThresholds, 0)
	threshold(&args.LowThresholds, 20)
	orDefault(&args.EvictableNamespaces, api.Namespaces{Exclude: []string{metav1.NamespaceSystem}})
	orDefault(&args.CoolDownTime, descheduler.Duration{Duration: defaultCoolDown})
	orDefault(&args.MinRuntime, descheduler.Duration{})
	orDefault(&args.HoldTime, descheduler.Duration{Duration: defaultHoldTime})
	orDefault(&args.WaitedFor, descheduler.Duration{Duration: defaultWaitedFor})
	orDefault(&args.MaxMoves, 32)
	orDefault(&args.MaxGangs, 4)
	orDefault(&args.MaxEvictions, 4)
	orDefault(&args.MinGain, 100)
	args.Mode = cmp.Or(args.Mode, descheduler.DemandMode)
	args.Unit = cmp.Or(args.Unit, v1.LabelHostname)
}

// orDefault sets what is not set.
func orDefault[T any](of **T, value T) {
	if *of == nil {
		*of = &value
	}
}

// onlyResource returns the resource that the thresholds name, if they name one; empty if they name several.
func onlyResource(args *descheduler.DefragmentationArgs) v1.ResourceName {
	named := map[v1.ResourceName]bool{}
	for _, thresholds := range []api.ResourceThresholds{args.ProtectionThresholds,
		args.DefragmentThresholds, args.LowThresholds} {
		for name := range thresholds {
			named[name] = true
		}
	}
	if len(named) != 1 {
		return ""
	}
	return slices.Collect(maps.Keys(named))[0]
}

// Validate returns what is wrong with arguments, each error with the path of its field. It is called before they get
// their defaults.
func Validate(object runtime.Object) error {
	args, ok := object.(*descheduler.DefragmentationArgs)
	if !ok {
		return fmt.Errorf("reading arguments of %s: want DefragmentationArgs, got %T", Name, object)
	}
	path := field.NewPath(Name, "args")
	var errs field.ErrorList
	for name, thresholds := range map[string]api.ResourceThresholds{
		"protectionThresholds": args.ProtectionThresholds, "defragmentThresholds": args.DefragmentThresholds,
		"lowThresholds": args.LowThresholds,
	} {
		for _, resource := range slices.Sorted(maps.Keys(thresholds)) {
			errs = append(errs, resourceName(resource, path.Child(name).Key(string(resource)))...)
			if percent := thresholds[resource]; percent < 0 || percent > 100 {
				errs = append(errs,
					field.Invalid(path.Child(name).Key(string(resource)), float64(percent), "must be a percentage from 0 to 100"))
			}
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(args.DefragmentThresholds)) {
		if most, ok := args.ProtectionThresholds[resource]; ok && args.DefragmentThresholds[resource] > most {
			errs = append(errs, field.Invalid(path.Child("defragmentThresholds").Key(string(resource)),
				float64(args.DefragmentThresholds[resource]),
				fmt.Sprintf("must not be above protectionThresholds, %v: no node could be a target", float64(most))))
		}
	}
	if args.ResourceType != "" {
		errs = append(errs, resourceName(args.ResourceType, path.Child("resourceType"))...)
	}
	modes := []descheduler.DefragmentationMode{descheduler.DemandMode, descheduler.ThresholdMode}
	if args.Mode != "" && !slices.Contains(modes, args.Mode) {
		errs = append(errs, field.NotSupported(path.Child("mode"), args.Mode, modes))
	}
	if args.Unit != "" {
		errs = append(errs, metav1validation.ValidateLabelName(args.Unit, path.Child("unit"))...)
	}
	if n := args.EvictableNamespaces; n != nil && len(n.Include) > 0 && len(n.Exclude) > 0 {
		errs = append(errs,
			field.Invalid(path.Child("evictableNamespaces"), "include and exclude", "only one of them may be set"))
	}
	for i, kind := range args.ControllerKinds {
		if gk := schema.ParseGroupKind(kind); gk.Kind == "" || gk.Group == "" {
			errs = append(errs,
				field.Invalid(path.Child("controllerKinds").Index(i), kind, "must be Kind.group, as RayCluster.ray.io"))
		}
	}
	if args.NumberOfNodes < 0 {
		errs = append(errs, field.Invalid(path.Child("numberOfNodes"), args.NumberOfNodes, "must not be negative"))
	}
	return append(errs, numbers(args, path)...).ToAggregate()
}

func resourceName(name v1.ResourceName, path *field.Path) (errs field.ErrorList) {
	for _, message := range validation.IsQualifiedName(string(name)) {
		errs = append(errs,
			field.Invalid(path, string(name), "must be the name of a resource, such as cpu or example.com/device: "+message))
	}
	return errs
}

func numbers(args *descheduler.DefragmentationArgs, path *field.Path) (errs field.ErrorList) {
	number := func(name string, n *int32, least int32) {
		if n != nil && (*n < least || *n > 1024) {
			errs = append(errs, field.Invalid(path.Child(name), *n, fmt.Sprintf("must be from %d to 1024", least)))
		}
	}
	number("maxMoves", args.MaxMoves, 1)
	number("maxGangs", args.MaxGangs, 0)
	number("maxEvictions", args.MaxEvictions, 1)
	if n := args.MinGain; n != nil && (*n < 0 || *n > 10000) {
		errs = append(errs, field.Invalid(path.Child("minGain"), *n, "must be a percentage from 0 to 10000"))
	}
	duration := func(name string, d *descheduler.Duration, least time.Duration) {
		if d != nil && d.Unread != "" {
			errs = append(errs,
				field.Invalid(path.Child(name), d.Unread, "must be a duration like 90s or 10m, or a number of seconds"))
		} else if d != nil && (d.Duration < least || d.Duration > 24*time.Hour) {
			errs = append(errs, field.Invalid(path.Child(name), d.String(), fmt.Sprintf("must be from %s to 24h", least)))
		}
	}
	duration("coolDownTime", args.CoolDownTime, 0)
	duration("minRuntime", args.MinRuntime, 0)
	duration("holdTime", args.HoldTime, time.Second)
	duration("waitedFor", args.WaitedFor, 0)
	return errs
}
