package localcluster

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/lockstep-sh/lockstep/test/helpers/await"
)

//go:embed stages.yaml
var stages []byte

const (
	// kwokctlConfig is the file in the cluster's folder that is written here for kwokctl; it keeps its own state in
	// kwok.yaml.
	kwokctlConfig = "kwokctl.yaml"

	loopback = "127.0.0.1"

	// firstPort and lastPort lie below the ports that Linux gives to outgoing connections (from
	// 32768), so that a busy client does not take the port of a server that is being restarted.
	firstPort, lastPort = 20000, 32000
	portAttempts        = 100

	// never is a node-monitor-grace-period: fake nodes send no heartbeats.
	never = 1000 * time.Hour

	servingPoll    = 50 * time.Millisecond
	servingTimeout = 5 * time.Second
	logTail        = 15 // lines of each log in an error
)

// auditPolicyFile, in the cluster's folder, makes the API server log every write, with the user, and everything else at
// the level that the policy is given.
const (
	auditPolicyFile = "audit-policy.yaml"
	auditPolicy     = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: %s
`
)

// given has the ports that FreePort has returned.
var given sync.Map

// FreePort returns a port of 127.0.0.1 that no process listens on. It returns each port once: a server that is being
// restarted does not find its port taken by one of another cluster of this process.
func FreePort() (int, error) {
	for range portAttempts {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if _, again := given.LoadOrStore(port, true); again {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
		if err == nil {
			_ = l.Close()
			return port, nil
		}
	}
	return 0, fmt.Errorf("finding a free port: %d attempts between %d and %d failed", portAttempts, firstPort, lastPort)
}

// errEnded means that a component has ended.
var errEnded = errors.New("has ended")

// create writes the configuration for kwokctl and makes it start the components.
func (c *Cluster) create(ctx context.Context, o Options) error {
	config, err := c.kwokctlConfiguration(o)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(c.dir, kwokctlConfig), config, 0o600); err != nil {
		return fmt.Errorf("configuring kwokctl: %w", err)
	}
	// kwokctl waits two minutes for an API server, also for one that has given up.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go c.watchComponents(ctx, cancel, components(o))
	return c.kwokctl(ctx, "create", "cluster", "--kubeconfig=")
}

// watchComponents cancels when a component that kwokctl has started has ended.
func (c *Cluster) watchComponents(ctx context.Context, cancel context.CancelCauseFunc, names []string) {
	for ctx.Err() == nil {
		for _, name := range names {
			if _, err := c.ComponentPID(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				cancel(err)
			}
		}
		time.Sleep(servingPoll)
	}
}

// kwokctl runs kwokctl for this cluster. What it starts inherits the environment, and so the marker.
func (c *Cluster) kwokctl(ctx context.Context, args ...string) error {
	bin := c.bin()
	args = append([]string{"--name", c.name, "--config", filepath.Join(c.dir, kwokctlConfig)}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "kwokctl"), args...)
	cmd.Env = append(c.environ(), "KWOK_WORKDIR="+filepath.Dir(bin), "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return fmt.Errorf("running kwokctl: %w", context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("running kwokctl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// environ returns the environment of our tools: with the marker, with a home inside the cluster's folder so that
// nothing is cached or configured outside, and without settings that would change kwokctl.
func (c *Cluster) environ() []string {
	var env []string
	for _, v := range os.Environ() {
		key, _, _ := strings.Cut(v, "=")
		if key != "PATH" && key != "HOME" && key != "KUBECONFIG" && !strings.HasPrefix(key, "KWOK_") {
			env = append(env, v)
		}
	}
	return append(env, markerKey+"="+c.dir, "HOME="+c.dir)
}

// extraArgs returns kwokctl's form of further flags for a component. They come after its own and win.
func extraArgs(component string, args ...string) map[string]any {
	var list []map[string]any
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		list = append(list, map[string]any{"key": key, "value": value})
	}
	return map[string]any{"name": component, "extraArgs": list}
}

// kwokctlConfiguration returns the whole configuration: options, extra flags, KWOK itself, stages.
func (c *Cluster) kwokctlConfiguration(o Options) ([]byte, error) {
	options, err := c.kwokctlOptions(o)
	if err != nil {
		return nil, err
	}
	apiServer := append([]string{
		// Without a route to anywhere there is no address to advertise, and loopback is refused as the endpoint of the
		// kubernetes service; neither is needed here.
		"advertise-address=" + loopback,
		"endpoint-reconciler-type=none",
		// New nodes are schedulable at once, with or without a controller manager to untaint them;
		// pods need no service account, which only a controller manager would create.
		"disable-admission-plugins=TaintNodesByCondition,ServiceAccount",
	}, o.APIServerArgs...)
	if o.AuditLog != "" {
		policy := filepath.Join(c.dir, auditPolicyFile)
		others := "None"
		if o.AuditReads {
			others = "Metadata"
		}
		if err := os.WriteFile(policy, fmt.Appendf(nil, auditPolicy, others), 0o644); err != nil {
			return nil, fmt.Errorf("writing the audit policy: %w", err)
		}
		apiServer = append(apiServer, "audit-policy-file="+policy, "audit-log-path="+o.AuditLog, "audit-log-mode=blocking")
	}
	documents := []any{
		map[string]any{
			"apiVersion": "config.kwok.x-k8s.io/v1alpha1",
			"kind":       "KwokctlConfiguration",
			"options":    options,
			"componentsPatches": []any{
				extraArgs("etcd", "unsafe-no-fsync=true"),
				extraArgs("kube-apiserver", apiServer...),
				extraArgs("kube-controller-manager", "leader-elect=false"),
				// kwokctl takes 0 for "not set". Without leases an idle cluster writes nothing.
				extraArgs("kwok-controller", "node-lease-duration-seconds=0"),
			},
		},
		map[string]any{
			"apiVersion": "config.kwok.x-k8s.io/v1alpha1",
			"kind":       "KwokConfiguration",
			"options": map[string]any{
				"podPlayStageParallelism": 16, "nodePlayStageParallelism": 4,
				"nodeLeaseParallelism": 4, "podsOnNodeSyncParallelism": 4,
			},
		},
	}
	var out bytes.Buffer
	for _, d := range documents {
		data, err := yaml.Marshal(d)
		if err != nil {
			return nil, fmt.Errorf("configuring kwokctl: %w", err)
		}
		out.Write(data)
		out.WriteString("---\n")
	}
	out.Write(stages)
	return out.Bytes(), nil
}

func (c *Cluster) kwokctlOptions(o Options) (map[string]any, error) {
	r, err := releaseNamed(o.Kubernetes)
	if err != nil {
		return nil, err
	}
	disable := []string{"kube-scheduler"}
	if o.WithoutControllerManager {
		disable = append(disable, "kube-controller-manager")
	}
	if o.WithoutKwok {
		disable = append(disable, "kwok-controller")
	}
	bin := c.bin()
	options := map[string]any{
		"runtime":                     "binary",
		"kubeVersion":                 r.version,
		"bindAddress":                 loopback,
		"disable":                     disable,
		"disableQPSLimits":            true,
		"heartbeatFactor":             1,
		"kubeFeatureGates":            o.FeatureGates,
		"kubeRuntimeConfig":           o.RuntimeConfig,
		"etcdBinary":                  filepath.Join(bin, "etcd"),
		"kubeApiserverBinary":         filepath.Join(bin, r.module, "kube-apiserver"),
		"kubeControllerManagerBinary": filepath.Join(bin, r.module, "kube-controller-manager"),
		"kubeSchedulerBinary":         filepath.Join(bin, "kube-scheduler"),
		"kwokControllerBinary":        filepath.Join(bin, "kwok"),
		"kubectlBinary":               filepath.Join(bin, "kubectl"),
		"kubeControllerManagerNodeMonitorGracePeriodMilliseconds": never.Milliseconds(),
	}
	for _, key := range []string{
		"etcdPort", "etcdPeerPort", "kubeApiserverPort", "kubeControllerManagerPort", "kwokControllerPort",
	} {
		port, err := FreePort()
		if err != nil {
			return nil, err
		}
		options[key] = port
	}
	return options, nil
}

// waitServing waits until the API server is ready and has made the namespaces that pods need.
func (c *Cluster) waitServing(ctx context.Context) error {
	for {
		err := c.serves(ctx)
		if err == nil {
			return nil
		}
		if apierrors.IsUnauthorized(err) {
			return fmt.Errorf("waiting for the API server: %w", err)
		}
		if pauseErr := await.Pause(ctx, servingPoll); pauseErr != nil {
			return fmt.Errorf("waiting for the API server: %w: %w", pauseErr, err)
		}
	}
}

// serves asks the API server once. A call that was made while it went down may never be answered.
func (c *Cluster) serves(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, servingTimeout)
	defer cancel()
	if _, err := c.clientset.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
		return err
	}
	_, err := c.clientset.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
	return err
}

// components returns the parts of the control plane that o asks for, by their names in pids/ and logs/.
func components(o Options) []string {
	names := []string{"etcd", "kube-apiserver"}
	if !o.WithoutControllerManager {
		names = append(names, "kube-controller-manager")
	}
	if !o.WithoutKwok {
		names = append(names, "kwok-controller")
	}
	return names
}

// checkComponents fails if one of the components has ended: kwokctl does not check that.
func (c *Cluster) checkComponents(o Options) error {
	for _, name := range components(o) {
		if _, err := c.ComponentPID(name); err != nil {
			return err
		}
	}
	return nil
}

// ComponentPID returns the id of a component's process, if it runs.
func (c *Cluster) ComponentPID(name string) (int, error) {
	data, err := os.ReadFile(c.pidFile(name))
	if err != nil {
		return 0, fmt.Errorf("finding the process of %s: %w", name, err)
	}
	if len(data) == 0 { // being written
		return 0, fmt.Errorf("finding the process of %s: %w", name, fs.ErrNotExist)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0, fmt.Errorf("finding the process of %s: %w", name, err)
	}
	if !belongs(pid, c.dir) {
		return 0, fmt.Errorf("finding the process of %s: process %d %w", name, pid, errEnded)
	}
	return pid, nil
}

func (c *Cluster) pidFile(component string) string {
	return filepath.Join(c.dir, "pids", component+".pid")
}

// tailLogs returns the last lines of every log, for the error of a start that failed.
func (c *Cluster) tailLogs() string {
	files, _ := filepath.Glob(filepath.Join(c.LogDir(), "*.log"))
	var out strings.Builder
	for _, f := range files {
		out.WriteString(c.tailLog(strings.TrimSuffix(filepath.Base(f), ".log")))
	}
	return out.String()
}

// tailLog returns the last lines of one log, if it can be read.
func (c *Cluster) tailLog(name string) string {
	data, err := os.ReadFile(filepath.Join(c.LogDir(), name+".log"))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return fmt.Sprintf("\n--- %s.log, last lines\n%s", name, strings.Join(lines[max(0, len(lines)-logTail):], "\n"))
}
