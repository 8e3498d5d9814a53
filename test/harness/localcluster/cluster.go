package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// DefaultName is the cluster that make up, make run and make down mean.
	DefaultName = "lockstep"

	// kubeconfigFile and logsDir are kwokctl's names inside the cluster's folder.
	kubeconfigFile = "kubeconfig.yaml"
	logsDir        = "logs"

	// nameLimit keeps the names of files below the limits of the file system.
	nameLimit = 100
)

// ErrExists means that a cluster of that name runs already.
var ErrExists = errors.New("the cluster exists already")

// validName keeps a name usable as a folder and as part of a kubeconfig context.
var validName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// Options say what to start. The zero value is a control plane without nodes.
type Options struct {
	// Name distinguishes clusters of one checkout. Default: "lockstep".
	Name string

	// Kubernetes is the version of the API server and the controller manager: one of Releases, or the same with the patch
	// that is built. Default: the newest.
	Kubernetes string

	// Nodes are the fake nodes to create. They are Ready when Up returns.
	Nodes []NodePool

	// Kubelets makes real kubelets run the nodes, in place of KWOK: their containers do nothing, but they admit pods or
	// refuse them, and end them, as on any node. Nodes have whole CPUs and no annotations, and cannot be deleted.
	Kubelets bool

	// WithoutKwok leaves the KWOK controller out, for benchmarks. Nodes stay Ready, but pods are not run: a bound
	// pod stays Pending, and a deleted one goes only with a grace period of 0.
	WithoutKwok bool

	// WithoutControllerManager leaves out kube-controller-manager: no Jobs, no garbage collection,
	// no taints for broken nodes.
	WithoutControllerManager bool

	// Manifests are files or folders to apply once the API server is up, in this order. CRDs among
	// them are served when Up returns. A folder with a kustomization.yaml is built first.
	Manifests []string

	// FeatureGates, for all components ("GenericWorkload=true,..."), and RuntimeConfig, for the API
	// server ("scheduling.k8s.io/v1beta1=true"), are those of Kubernetes. Default: none.
	FeatureGates  string
	RuntimeConfig string

	// APIServerArgs are further flags of kube-apiserver, without dashes: "v=2".
	APIServerArgs []string

	// AuditLog is a file, outside the cluster's folder, into which the API server writes every write that it is
	// asked for, with the user. Default: none.
	AuditLog string

	// AuditReads adds reads to the audit log.
	AuditReads bool

	// Keep leaves the cluster running when the process that called Up ends. Without it, a cluster
	// whose creator is gone is garbage, which the next Up of any name takes down.
	Keep bool

	// Progress gets a line about each binary that has to be built. Default: standard error.
	Progress io.Writer
}

// Tools returns what Build has to make for such a cluster beside the control plane.
func (o Options) Tools() []string {
	if o.Kubelets {
		return []string{kubelets}
	}
	return nil
}

// Cluster is a running control plane.
type Cluster struct {
	name, dir string
	kubelets  bool
	config    *rest.Config
	clientset kubernetes.Interface
}

// Up starts a cluster and returns when its nodes are Ready and pods can be created. The binaries are
// built first where they are missing. If it fails, nothing of the cluster is left; the error has the
// last lines of the logs. ctx bounds the start only.
func Up(ctx context.Context, o Options) (*Cluster, error) {
	if o.Name == "" {
		o.Name = DefaultName
	}
	if o.Progress == nil {
		o.Progress = os.Stderr
	}
	dir, err := clusterDir(o.Name)
	if err != nil {
		return nil, err
	}
	o.WithoutKwok = o.WithoutKwok || o.Kubelets
	if err := Build(ctx, o.Progress, o.Kubernetes, o.Tools()...); err != nil {
		return nil, err
	}
	if err := sweep(ctx); err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		c, err := start(ctx, o, dir)
		if errors.Is(err, errEnded) && attempt < startAttempts && ctx.Err() == nil {
			continue // another process may have been quicker to take a port that was free
		}
		return c, err
	}
}

// startAttempts bounds the attempts to start a cluster, or its API server, when a component ends.
const startAttempts = 3

// start starts a cluster in its folder, or leaves nothing behind.
func start(ctx context.Context, o Options, dir string) (*Cluster, error) {
	if err := claim(dir); err != nil {
		if _, statErr := os.Stat(dir); statErr == nil {
			return nil, fmt.Errorf("starting cluster %s: %w", o.Name, ErrExists)
		}
		return nil, fmt.Errorf("starting cluster %s: %w", o.Name, err)
	}
	c := &Cluster{name: o.Name, dir: dir, kubelets: o.Kubelets}
	if err := c.up(ctx, o); err != nil {
		logs := ""
		if !errors.Is(ctx.Err(), context.Canceled) { // the caller that interrupts the start knows why
			logs = c.tailLogs()
		}
		err = fmt.Errorf("starting cluster %s: %w%s", o.Name, err, logs)
		return nil, errors.Join(err, c.Down(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// Get returns a cluster that another process started.
func Get(name string) (*Cluster, error) {
	dir, err := clusterDir(name)
	if err != nil {
		return nil, err
	}
	c := &Cluster{name: name, dir: dir}
	if err := c.connect(); err != nil {
		return nil, err
	}
	return c, nil
}

// up does what Up promises, in the claimed folder.
func (c *Cluster) up(ctx context.Context, o Options) error {
	if err := c.create(ctx, o); err != nil {
		return err
	}
	if err := c.connect(); err != nil {
		return err
	}
	if err := c.waitServing(ctx); err != nil {
		return err
	}
	if err := c.Apply(ctx, o.Manifests...); err != nil {
		return err
	}
	if err := c.AddNodes(ctx, o.Nodes...); err != nil {
		return err
	}
	if err := c.checkComponents(o); err != nil {
		return err
	}
	if o.Keep { // only now: half a cluster is of no use
		return writeOwner(c.dir, true)
	}
	return nil
}

// connect reads the kubeconfig.
func (c *Cluster) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return fmt.Errorf("reading the kubeconfig of cluster %s: %w", c.name, err)
	}
	config.QPS = -1 // no client-side limit: a test must not measure it
	c.config = config
	typed := rest.CopyConfig(config)
	typed.ContentType = "application/vnd.kubernetes.protobuf"
	typed.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	if c.clientset, err = kubernetes.NewForConfig(typed); err != nil {
		return fmt.Errorf("making a client for cluster %s: %w", c.name, err)
	}
	return nil
}

// Name returns Options.Name.
func (c *Cluster) Name() string { return c.name }

// Dir returns the folder with all files of the cluster. Files put there go when the cluster goes.
func (c *Cluster) Dir() string { return c.dir }

// LogDir returns the folder with the logs of all processes.
func (c *Cluster) LogDir() string { return filepath.Join(c.dir, logsDir) }

// Kubeconfig returns the path of the kubeconfig of an administrator.
func (c *Cluster) Kubeconfig() string { return filepath.Join(c.dir, kubeconfigFile) }

// AccountsNamespace is where the service accounts of manifests/rbac are.
const AccountsNamespace = "kube-system"

// AccountName returns how the API server knows a service account of AccountsNamespace.
func AccountName(account string) string {
	return serviceaccount.MakeUsername(AccountsNamespace, account)
}

// KubeconfigFor writes a kubeconfig of a service account of AccountsNamespace beside that of the administrator, as
// ACCOUNT.yaml, and returns its path. It impersonates the account, as the administrator: a client may do what the
// account may.
func (c *Cluster) KubeconfigFor(account string) (string, error) {
	config, err := clientcmd.LoadFromFile(c.Kubeconfig())
	if err != nil {
		return "", fmt.Errorf("making a kubeconfig for %s: %w", account, err)
	}
	for _, user := range config.AuthInfos {
		user.Impersonate = AccountName(account)
	}
	path := filepath.Join(c.dir, account+".yaml")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return "", fmt.Errorf("making a kubeconfig for %s: %w", account, err)
	}
	return path, nil
}

// RESTConfig returns a copy of the administrator's client configuration, without a client-side limit.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.config) }

// Clientset returns the administrator's client. It speaks protobuf.
func (c *Cluster) Clientset() kubernetes.Interface { return c.clientset }

func clustersDir() (string, error) {
	local, err := localDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(local, "clusters"), nil
}

func clusterDir(name string) (string, error) {
	if !validName.MatchString(name) || len(name) > nameLimit {
		return "", fmt.Errorf("checking the name of the cluster: %q is not of the form %s", name, validName)
	}
	parent, err := clustersDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(parent, name), nil
}
