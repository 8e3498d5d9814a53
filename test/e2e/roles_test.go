package e2e

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
	"github.com/lockstep-sh/lockstep/test/harness/scenario"
)

var roles = flag.Bool("roles", false, "also say of some scenarios which rules of the roles in manifests/ they do not need; of all of them it is said always")

// roleFiles, in manifests/, are what the accounts have in the scenarios.
var roleFiles = []string{"rbac/scheduler.yaml", "rbac/controller.yaml", "descheduler/workload/rbac.yaml"}

// optionalRoles, in manifests/, are those that a scenario gives to an account while it runs. What was refused before is
// no error.
var optionalRoles = []string{"rbac/provisioning-requests.yaml"}

// notInScenarios are rules that the programs need elsewhere. What is here and needed in scenarios, too, is no error.
var notInScenarios = map[string]string{
	"lockstep-controller create leases coordination.k8s.io":                              leaderElection,
	"lockstep-controller get leases coordination.k8s.io":                                 leaderElection,
	"lockstep-controller update leases coordination.k8s.io":                              leaderElection,
	"lockstep-controller create events":                                                  leaderElection,
	"lockstep-controller patch events":                                                   leaderElection,
	"lockstep-controller patch events events.k8s.io":                                     "an event that comes again is a series",
	"lockstep-controller create tokenreviews authentication.k8s.io":                      metrics,
	"lockstep-controller create subjectaccessreviews authorization.k8s.io":               metrics,
	"lockstep-controller get jobsets jobset.x-k8s.io":                                    otherKinds,
	"lockstep-controller list jobsets jobset.x-k8s.io":                                   otherKinds,
	"lockstep-controller watch jobsets jobset.x-k8s.io":                                  otherKinds,
	"lockstep-controller get leaderworkersets leaderworkerset.x-k8s.io":                  otherKinds,
	"lockstep-controller list leaderworkersets leaderworkerset.x-k8s.io":                 otherKinds,
	"lockstep-controller watch leaderworkersets leaderworkerset.x-k8s.io":                otherKinds,
	"lockstep-controller get mpijobs kubeflow.org":                                       otherKinds,
	"lockstep-controller list mpijobs kubeflow.org":                                      otherKinds,
	"lockstep-controller watch mpijobs kubeflow.org":                                     otherKinds,
	"lockstep-controller get rayclusters ray.io":                                         otherKinds,
	"lockstep-controller list rayclusters ray.io":                                        otherKinds,
	"lockstep-controller watch rayclusters ray.io":                                       otherKinds,
	"lockstep-controller patch podgroups scheduling.x-k8s.io":                            "stages, and workloads and owners of another size",
	"lockstep-controller patch podgroups scheduling.k8s.io":                              "native gangs that were moved",
	"lockstep-controller delete podgroups scheduling.x-k8s.io":                           "owners that no longer ask for a gang",
	"lockstep-controller delete defragmentationplans scheduling.lockstep.dev":            "--plan-keep-ended is over",
	"lockstep-controller delete podmigrations scheduling.lockstep.dev":                   "those of a plan that was withdrawn",
	"lockstep-controller update defragmentationplans/finalizers scheduling.lockstep.dev": "asked by the admission plugin OwnerReferencesPermissionEnforcement",
	"lockstep-controller update podmigrations/finalizers scheduling.lockstep.dev":        "asked by the admission plugin OwnerReferencesPermissionEnforcement",
	"lockstep-controller get replicationcontrollers":                                     "successors of their pods",
	"lockstep-controller get statefulsets apps":                                          "successors of their pods",
	"lockstep-descheduler create leases coordination.k8s.io":                             leaderElection,
	"lockstep-descheduler get leases coordination.k8s.io":                                leaderElection,
	"lockstep-descheduler update leases coordination.k8s.io":                             leaderElection,
	"lockstep-descheduler create events":                                                 othersEvict,
	"lockstep-descheduler patch events":                                                  othersEvict,
	"lockstep-descheduler create events events.k8s.io":                                   othersEvict,
	"lockstep-descheduler patch events events.k8s.io":                                    othersEvict,
	"lockstep-descheduler get jobs batch":                                                "whether the Job of a pod makes a successor",
	"lockstep-descheduler get priorityclasses scheduling.k8s.io":                         "priorityThreshold of DefaultEvictor",
	"lockstep-descheduler list priorityclasses scheduling.k8s.io":                        "priorityThreshold of DefaultEvictor",
	"lockstep-descheduler watch priorityclasses scheduling.k8s.io":                       "priorityThreshold of DefaultEvictor",
	"lockstep-descheduler get runtimeclasses node.k8s.io":                                waiting,
	"lockstep-descheduler list limitranges":                                              waiting,
	"lockstep-descheduler get podgroups scheduling.k8s.io":                               native,
	"lockstep-descheduler list podgroups scheduling.k8s.io":                              native,
	"lockstep-descheduler watch podgroups scheduling.k8s.io":                             native,
	"lockstep-descheduler get queues scheduling.lockstep.dev":                            queues,
	"lockstep-descheduler list queues scheduling.lockstep.dev":                           queues,
	"lockstep-descheduler get resourceclaimtemplates resource.k8s.io":                    queues,
	"lockstep-descheduler list resourceclaimtemplates resource.k8s.io":                   queues,
	"lockstep-descheduler watch resourceclaimtemplates resource.k8s.io":                  queues,
	"lockstep-descheduler watch queues scheduling.lockstep.dev":                          queues,
}

// Why a program needs what scenarios do not.
const (
	leaderElection = "scenarios run one replica of it, without leader election"
	metrics        = "its metrics server, which test/lockstepcontroller asks; scenarios have none"
	otherKinds     = "kinds that operators bring: test/operators"
	othersEvict    = "what the descheduler tells of evictions by its other plugins, and of its leader election"
	native         = "native PodGroups, in clusters that serve them"
	waiting        = "templates of Reservations that have no place while it looks"
	queues         = "where the scheduler's configuration has FairShare"
)

// checkRoles returns an error for each rule of the manifests that the scenarios did not need, and for each request that
// no rule allows: the roles are what is needed, and no more.
func checkRoles(requested map[scenario.Request]bool) error {
	root, err := localcluster.Root()
	if err != nil {
		return err
	}
	var errs []error
	granted := map[scenario.Request]bool{}
	for _, file := range slices.Concat(roleFiles, optionalRoles) {
		rules, err := grantedIn(filepath.Join(root, "manifests", filepath.FromSlash(file)))
		if err != nil {
			return err
		}
		optional := slices.Contains(optionalRoles, file)
		for _, rule := range rules {
			granted[rule] = true
			if !optional && !requested[rule] && !reads(rule, requested) && notInScenarios[permission(rule)] == "" {
				errs = append(errs, fmt.Errorf("manifests/%s grants %s, which no scenario needs: remove it, or say in notInScenarios who does", file, permission(rule)))
			}
		}
	}
	for r := range requested {
		allowed := r
		allowed.Forbidden = false
		// An API server that has just started refuses all requests, until it has read the roles. Roles of Kubernetes
		// grant some of what the accounts ask for.
		if r.Forbidden && !requested[allowed] && !granted[allowed] {
			errs = append(errs, fmt.Errorf("manifests/ do not grant %s, which was asked for", permission(r)))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// permission returns what a request needs, in words.
func permission(r scenario.Request) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", r.Account, r.Verb, r.Resource, r.Group))
}

// reads reports whether a request reads what the account reads in another way: an account that may list may as well get
// and watch.
func reads(r scenario.Request, requested map[scenario.Request]bool) bool {
	verbs := []string{"get", "list", "watch"}
	return slices.Contains(verbs, r.Verb) && slices.ContainsFunc(verbs, func(verb string) bool {
		r.Verb = verb
		return requested[r]
	})
}

// grantedIn lists what the roles in a file grant, each as the request that it allows. A role belongs to the account
// that its name begins with.
func grantedIn(file string) ([]scenario.Request, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading roles: %w", err)
	}
	var all []scenario.Request
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		var role rbacv1.ClusterRole // a Role has the same fields
		err := decoder.Decode(&role)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading roles of %s: %w", file, err)
		}
		account, _, _ := strings.Cut(role.Name, ":")
		for _, rule := range role.Rules {
			all = append(all, granted(account, &rule)...)
		}
	}
}

func granted(account string, rule *rbacv1.PolicyRule) (all []scenario.Request) {
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				all = append(all, scenario.Request{Account: account, Group: group, Resource: resource, Verb: verb})
			}
		}
	}
	return all
}
