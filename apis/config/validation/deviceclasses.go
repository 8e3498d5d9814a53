package validation

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// deviceClasses checks that DeviceClasses count as resources that pods can request and Queues can state.
func deviceClasses(path *field.Path, resources map[string]v1.ResourceName) field.ErrorList {
	var errs field.ErrorList
	for _, class := range slices.Sorted(maps.Keys(resources)) {
		at := path.Key(class)
		for _, problem := range utilvalidation.IsDNS1123Subdomain(class) {
			errs = append(errs, field.Invalid(at, class, "is not the name of a DeviceClass: "+problem))
		}
		errs = append(errs, extendedResource(at, resources[class])...)
	}
	return errs
}

// extendedResource checks the name of an extended resource, or of the one that Kubernetes derives from a DeviceClass.
func extendedResource(path *field.Path, name v1.ResourceName) field.ErrorList {
	const example = ", such as nvidia.com/gpu"
	switch {
	case name == "":
		return field.ErrorList{field.Required(path, "name an extended resource"+example)}
	case strings.HasPrefix(string(name), resourceapi.ResourceDeviceClassPrefix):
	case !strings.Contains(string(name), "/"),
		strings.Contains(string(name), v1.ResourceDefaultNamespacePrefix),
		strings.HasPrefix(string(name), v1.DefaultResourceRequestsPrefix):
		return field.ErrorList{field.Invalid(path, name, "must be the name of an extended resource"+example)}
	}
	var errs field.ErrorList
	for _, problem := range utilvalidation.IsQualifiedName(string(name)) {
		errs = append(errs, field.Invalid(path, name, problem))
	}
	return errs
}
