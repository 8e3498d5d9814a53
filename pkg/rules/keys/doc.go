// Package keys has the table of all labels and annotations of this project: where each may stand, and which values it
// takes. What reads keys takes names of values, bounds and texts from it, and so do the warnings about keys that are
// ignored, and the ValidatingAdmissionPolicies in manifests/keys (hack/keypolicy).
//
// A value that depends on more than its key, such as a total below the minimum, is checked by what reads it.
package keys
