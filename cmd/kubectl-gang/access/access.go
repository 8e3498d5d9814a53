package access

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	authorizationv1 "k8s.io/api/authorization/v1"
	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/lockstep-sh/lockstep/apis/coscheduling"
	"github.com/lockstep-sh/lockstep/apis/scheduling/v1alpha1"
	"github.com/lockstep-sh/lockstep/pkg/kube/apiobjects"
)

const (
	// qps and burst are the client limits of kubectl.
	qps   = 50
	burst = 300
)

// Access is the cluster that the flags name, and where to write to.
type Access struct {
	genericiooptions.IOStreams
	// files and overrides are what the flags say of the cluster, the user and the namespace; kubeconfig is what is read by
	// them, once, when it is first needed.
	files      *clientcmd.ClientConfigLoadingRules
	overrides  clientcmd.ConfigOverrides
	kubeconfig clientcmd.ClientConfig

	notes sync.Mutex
	// refusedWrite is whether the API server refused to change something, and refusedReads what it refused to read.
	refusedWrite atomic.Bool
	mu           sync.Mutex
	refusedReads map[schema.GroupResource]bool
	// client makes the client, once, and served reports whether the cluster has a kind.
	client func() (client.Client, error)
	served func(schema.GroupVersionResource) (bool, error)
}

// New returns an access by the flags that kubectl has.
func New(streams genericiooptions.IOStreams) *Access {
	a := &Access{IOStreams: streams, files: clientcmd.NewDefaultClientConfigLoadingRules(),
		refusedReads: map[schema.GroupResource]bool{}}
	a.kubeconfig = clientcmd.NewNonInteractiveDeferredLoadingClientConfig(a.files, &a.overrides)
	a.client, a.served = sync.OnceValues(a.newClient), a.isServed
	return a
}

// Config returns how to reach the cluster.
func (a *Access) Config() (*rest.Config, error) {
	config, err := a.kubeconfig.ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("there is no kubeconfig: name one by --kubeconfig or KUBECONFIG, or make ~/.kube/config")
	case err != nil:
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	a.impersonate(config)
	config.QPS, config.Burst = qps, burst
	config.Wrap(a.noting)
	return config, nil
}

// impersonate makes a config act as the user of --as: client-go does not look at the flag in a pod without a
// kubeconfig.
func (a *Access) impersonate(config *rest.Config) {
	if user := a.overrides.AuthInfo; user.Impersonate != "" {
		config.Impersonate = rest.ImpersonationConfig{
			UserName: user.Impersonate, UID: user.ImpersonateUID, Groups: user.ImpersonateGroups,
			Extra: user.ImpersonateUserExtra,
		}
	}
}

// Client returns a client that reads and writes objects of the kinds that kubectl gang knows. Those of Kubernetes
// come as protobuf. It asks the cluster for no list of kinds: the first request for a kind that is not served reports
// that.
func (a *Access) Client() (client.Client, error) { return a.client() }

func (a *Access) newClient() (client.Client, error) {
	config, err := a.Config()
	if err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: apiobjects.Scheme(), Mapper: Mapper()})
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return c, nil
}

// Namespace returns the namespace that the flags or the kubeconfig name; empty for all.
func (a *Access) Namespace(all bool) (string, error) {
	if all {
		return "", nil
	}
	namespace, _, err := a.kubeconfig.Namespace()
	if err != nil {
		return "", fmt.Errorf("reading the namespace of the kubeconfig: %w", err)
	}
	return namespace, nil
}

// Note writes to stderr what is good to know beside the output. It is safe for concurrent use.
func (a *Access) Note(format string, args ...any) {
	a.notes.Lock()
	defer a.notes.Unlock()
	_, _ = fmt.Fprintf(a.ErrOut, "note: "+format+"\n", args...) // there is nowhere left to report it
}

// Mapper returns a mapper of the kinds that kubectl gang knows to what the API calls them.
func Mapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for scope, kinds := range map[meta.RESTScope][]schema.GroupVersionKind{
		meta.RESTScopeNamespace: {
			v1.SchemeGroupVersion.WithKind("Pod"),
			coscheduling.Kind,
			schedulingv1beta1.SchemeGroupVersion.WithKind("PodGroup"),
			v1alpha1.SchemeGroupVersion.WithKind("PodMigration"),
			resourceapi.SchemeGroupVersion.WithKind("ResourceClaim"),
			resourceapi.SchemeGroupVersion.WithKind("ResourceClaimTemplate"),
		},
		meta.RESTScopeRoot: {
			v1.SchemeGroupVersion.WithKind("Node"),
			v1.SchemeGroupVersion.WithKind("Namespace"),
			v1alpha1.SchemeGroupVersion.WithKind("Queue"),
			v1alpha1.SchemeGroupVersion.WithKind("Reservation"),
			v1alpha1.SchemeGroupVersion.WithKind("DefragmentationPlan"),
			resourceapi.SchemeGroupVersion.WithKind("ResourceSlice"),
			resourceapi.SchemeGroupVersion.WithKind("DeviceClass"),
			authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"),
		},
	} {
		for _, kind := range kinds {
			mapper.Add(kind, scope)
			mapper.Add(kind.GroupVersion().WithKind(kind.Kind+"List"), scope) // a cache of one namespace asks for these, too
		}
	}
	return mapper
}
