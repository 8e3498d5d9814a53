package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/dynamic"

	"github.com/lockstep-sh/lockstep/test/harness/localcluster"
)

// Fleet keeps control planes from one scenario to the next, since cleaning one takes a fraction of the
// time that starting one does. A scenario has a control plane to itself while it runs. One that cannot
// be cleaned of everything is taken down. It is safe for concurrent use.
type Fleet struct {
	// Kubernetes is the version of all control planes, as in [localcluster.Options]. It is set before the first starts.
	Kubernetes string
	// Kubelets makes kubelets run the nodes, as in [localcluster.Options]. It is set before the first starts, too. Nodes
	// cannot be taken away then, so that each scenario has a control plane of its own.
	Kubelets bool

	root string

	// starting is held while a control plane starts: several at once take too long for their parts.
	starting sync.Mutex

	mu        sync.Mutex
	made      int
	idle      map[Cluster][]*site
	all       map[*site]bool
	requested map[Request]bool // of control planes that are gone
}

// site is a control plane and what the runner has around it.
type site struct {
	kind    Cluster
	cluster *localcluster.Cluster
	client  dynamic.Interface
	audit   string // the audit log
}

// The service accounts of the manifests: as these, programs run.
const (
	schedulerAccount   = "lockstep-scheduler"
	controllerAccount  = "lockstep-controller"
	deschedulerAccount = "lockstep-descheduler"
)

// strayDeletes keeps KWOK from deleting the wrong pod. It deletes by name what it has seen terminating, and if that is
// gone by then and a pod of the same name is there, it deletes that one. Such a request is recognized by its options:
// no grace period, and unlike ours no propagation policy. Requests of the Job controller for pods that wait have the
// same options; these are let through, since no pod of a Job has the name of an earlier one.
const strayDeletes = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: lockstep-scenario-stray-deletes}
spec:
  failurePolicy: Ignore
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [DELETE], resources: [pods]}
  validations:
  - message: this pod is not terminating
    expression: >-
      has(oldObject.metadata.deletionTimestamp) || !has(request.options.gracePeriodSeconds) ||
      request.options.gracePeriodSeconds != 0 || has(request.options.propagationPolicy) ||
      (has(oldObject.metadata.ownerReferences) && oldObject.metadata.ownerReferences.exists(o, o.kind == "Job"))
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: lockstep-scenario-stray-deletes}
spec: {policyName: lockstep-scenario-stray-deletes, validationActions: [Deny]}
`

// NewFleet makes an empty fleet. Its files are in .local/scenarios of the repository.
func NewFleet() (*Fleet, error) {
	root, err := localcluster.Root()
	if err != nil {
		return nil, err
	}
	f := &Fleet{root: root, idle: map[Cluster][]*site{}, all: map[*site]bool{}, requested: map[Request]bool{}}
	if err := os.MkdirAll(f.dir(), 0o755); err != nil {
		return nil, fmt.Errorf("making a folder for scenarios: %w", err)
	}
	return f, nil
}

func (f *Fleet) dir() string { return filepath.Join(f.root, ".local", "scenarios") }

// take hands out a clean control plane of that kind.
func (f *Fleet) take(ctx context.Context, kind Cluster) (*site, error) {
	f.mu.Lock()
	if idle := f.idle[kind]; len(idle) > 0 {
		s := idle[len(idle)-1]
		f.idle[kind] = idle[:len(idle)-1]
		f.mu.Unlock()
		return s, nil
	}
	f.made++
	name := fmt.Sprintf("scenario-%s-%d", strconv.FormatInt(time.Now().UnixNano(), 36), f.made)
	f.mu.Unlock()
	audit := filepath.Join(f.dir(), name+".audit.log")
	s, err := f.start(ctx, kind, localcluster.Options{Name: name, AuditLog: audit, AuditReads: true})
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.all[s] = true
	f.mu.Unlock()
	return s, nil
}

// kept starts a control plane that stays, in place of the one that has its name. It has no audit log.
func (f *Fleet) kept(ctx context.Context, kind Cluster, name string) (*site, error) {
	if err := localcluster.Down(ctx, name); err != nil {
		return nil, err
	}
	return f.start(ctx, kind, localcluster.Options{Name: name, Keep: true})
}

func (f *Fleet) start(ctx context.Context, kind Cluster, o localcluster.Options) (*site, error) {
	f.starting.Lock()
	defer f.starting.Unlock()
	strays := filepath.Join(f.dir(), "stray-deletes.yaml")
	if err := os.WriteFile(strays, []byte(strayDeletes), 0o644); err != nil {
		return nil, fmt.Errorf("writing what the control plane reads: %w", err)
	}
	s := &site{kind: kind, audit: o.AuditLog}
	o.Manifests = append([]string{strays}, localcluster.Roles(f.root)...)
	o.Kubernetes, o.Kubelets, o.FeatureGates = f.Kubernetes, f.Kubelets, kind.FeatureGates
	o.RuntimeConfig = kind.RuntimeConfig
	if kind.NativePodGroups {
		o.FeatureGates = strings.TrimSuffix("GenericWorkload=true,"+kind.FeatureGates, ",")
		o.RuntimeConfig = strings.TrimSuffix("scheduling.k8s.io/v1beta1=true,"+kind.RuntimeConfig, ",")
	}
	if !kind.WithoutCRDs {
		o.Manifests = append(o.Manifests, filepath.Join(f.root, "manifests", "crds"))
	}
	var err error
	if s.cluster, err = localcluster.Up(ctx, o); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.audit))
	}
	if s.client, err = dynamic.NewForConfig(s.cluster.RESTConfig()); err != nil {
		return nil, errors.Join(fmt.Errorf("making a client: %w", err), s.cluster.Down(ctx))
	}
	return s, nil
}

// giveBack keeps a control plane for the next scenario if it can be cleaned, and drops it otherwise.
func (f *Fleet) giveBack(ctx context.Context, s *site) error {
	if f.Kubelets || s.clean(ctx) != nil {
		return f.drop(ctx, s)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.idle[s.kind] = append(f.idle[s.kind], s)
	return nil
}

func (f *Fleet) drop(ctx context.Context, s *site) error {
	f.mu.Lock()
	delete(f.all, s)
	f.mu.Unlock()
	return f.end(ctx, s)
}

// end takes a control plane down, and remembers what the programs asked it for.
func (f *Fleet) end(ctx context.Context, s *site) error {
	down := s.cluster.Down(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	return errors.Join(down, addRequests(s.audit, f.requested), os.RemoveAll(s.audit))
}

// Requested returns what the programs asked the API servers for in all scenarios. It is known after Close.
func (f *Fleet) Requested() map[Request]bool { return f.requested }

// Close takes every control plane down.
func (f *Fleet) Close(ctx context.Context) error {
	f.mu.Lock()
	all := f.all
	f.all, f.idle = map[*site]bool{}, map[Cluster][]*site{}
	f.mu.Unlock()
	var errs []error
	for s := range all {
		errs = append(errs, f.end(ctx, s))
	}
	return errors.Join(errs...)
}
