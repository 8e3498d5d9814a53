package localcluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

var crds = schema.GroupVersionResource{
	Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
}

// Apply applies files or folders in this order, as kubectl apply --server-side does, and waits until
// every CRD of the cluster is served. A folder with a kustomization.yaml is built first.
func (c *Cluster) Apply(ctx context.Context, paths ...string) error {
	for _, path := range paths {
		flag := "-f"
		if _, err := os.Stat(filepath.Join(path, "kustomization.yaml")); err == nil {
			flag = "-k"
		}
		if _, err := c.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", flag, path); err != nil {
			return err
		}
	}
	if len(paths) == 0 {
		return nil
	}
	return c.waitCRDs(ctx)
}

// Kubectl runs kubectl against the cluster and returns its standard output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	out, err := c.output(exec.CommandContext(ctx, filepath.Join(c.bin(), "kubectl"), args...))
	if err != nil {
		return "", fmt.Errorf("running kubectl %s: %w", strings.Join(args, " "), err)
	}
	return out, nil
}

// Shell runs command lines at the top of the repository, in which kubectl is that of the cluster, and returns their
// standard output. The first that fails ends them.
func (c *Cluster) Shell(ctx context.Context, line string, variables ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", "-e", "-c", line)
	cmd.Dir, cmd.Env = filepath.Dir(filepath.Dir(c.bin())), variables
	out, err := c.output(cmd)
	if err != nil {
		return "", fmt.Errorf("running %s: %w\n%s", line, err, strings.TrimSpace(out))
	}
	return out, nil
}

// bin returns the folder of our tools.
func (c *Cluster) bin() string { return filepath.Join(filepath.Dir(filepath.Dir(c.dir)), "bin") }

// output runs a command and returns what it prints, also where it fails; the error has what it wrote to stderr.
func (c *Cluster) output(cmd *exec.Cmd) (string, error) {
	cmd.Env = append(append(c.environ(), "PATH="+c.bin()+":"+os.Getenv("PATH"), "KUBECONFIG="+c.Kubeconfig()), cmd.Env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// waitCRDs waits until every CRD is established: until then its objects are refused.
func (c *Cluster) waitCRDs(ctx context.Context) error {
	client, err := dynamic.NewForConfig(c.config)
	if err != nil {
		return fmt.Errorf("making a client for CRDs: %w", err)
	}
	for {
		list, err := client.Resource(crds).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("listing CRDs: %w", err)
		}
		waiting := ""
		for i := range list.Items {
			if !established(&list.Items[i]) {
				waiting = list.Items[i].GetName()
			}
		}
		if waiting == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for CRD %s to be served: %w", waiting, context.Cause(ctx))
		case <-time.After(servingPoll):
		}
	}
}

func established(crd *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "Established" && m["status"] == "True" {
			return true
		}
	}
	return false
}
