package overlayserver

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/access"
	"github.com/lockstep-sh/lockstep/cmd/kubectl-gang/source"
)

// Server is the overlay. It is safe for concurrent use.
type Server struct {
	base source.Base
	// secret is the first part of all paths: a client that knows it may read what the process may. A kubeconfig gives no
	// token to a server without TLS.
	secret   string
	listener net.Listener
	http     http.Server
	store    store
}

// Start serves on the loopback interface, on a free port, to clients that have the kubeconfig that [Server.Kubeconfig]
// writes.
func Start(base source.Base) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serving what would be: %w", err)
	}
	s := &Server{base: base, secret: "/" + rand.Text(), listener: listener, store: newStore()}
	s.http = http.Server{Handler: http.StripPrefix(s.secret, s), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.http.Serve(listener) }() // it ends with Close
	return s, nil
}

// Close ends all requests.
func (s *Server) Close() error { return s.http.Close() }

// Kubeconfig writes a kubeconfig for the server into a directory, and returns its path.
func (s *Server) Kubeconfig(dir string) (string, error) {
	const name = "whatif"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: "http://" + s.listener.Addr().String() + s.secret}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name}
	config.CurrentContext = name
	file := filepath.Join(dir, "kubeconfig.yaml")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		return "", fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return file, os.Chmod(file, 0o600)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, err := access.Requests.NewRequestInfo(r)
	if err != nil {
		refuse(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	switch {
	case info.IsResourceRequest && info.Verb == "watch":
		s.watch(w, r, info)
	case info.IsResourceRequest && info.Verb == "get":
		o, err := s.find(r, refOf(info))
		answer(w, o, err)
	case r.Method == http.MethodGet:
		s.pass(w, r, info)
	case info.IsResourceRequest:
		o, err := s.write(r, info)
		answer(w, o, err)
	default:
		refuse(w, apierrors.NewMethodNotSupported(refOf(info).GroupResource(), info.Verb))
	}
}

// pass hands on what the base answers.
func (s *Server) pass(w http.ResponseWriter, r *http.Request, info *request.RequestInfo) {
	if info.Verb == "list" && asksForMetadata(r) {
		// A client that asks for no more wants to know what its cache lacks of what is stored: nothing, since it has just
		// been read.
		answer(w, &object{Object: map[string]any{
			"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
			"metadata": map[string]any{"resourceVersion": "1"}, "items": []any{},
		}}, nil)
		return
	}
	response, err := s.base.Read(r)
	if err != nil {
		if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" && r.Context().Err() == nil {
			s.store.mu.Lock()
			s.store.refused = err
			s.store.mu.Unlock()
		}
		refuse(w, apierrors.NewInternalError(err))
		return
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusForbidden || response.StatusCode == http.StatusUnauthorized {
		s.store.mu.Lock()
		s.store.refused = &apierrors.StatusError{ErrStatus: metav1.Status{
			Code: int32(response.StatusCode),
			Message: fmt.Sprintf("the scheduler that decides has to read what the cluster's scheduler reads: %s %s: %s",
				info.Verb, r.URL.Path, response.Status),
		}}
		s.store.mu.Unlock()
	}
	relay(w, response)
}

// relay hands on an answer.
func relay(w http.ResponseWriter, response *http.Response) {
	for _, key := range []string{"Content-Type", "Content-Encoding"} {
		if value := response.Header.Get(key); value != "" {
			w.Header().Set(key, value)
		}
	}
	w.WriteHeader(response.StatusCode)
	_, _ = io.Copy(w, response.Body) // the client is gone, and asks again
}

// asksForMetadata reports whether a request is for the metadata of objects only.
func asksForMetadata(r *http.Request) bool {
	return slices.ContainsFunc(r.Header.Values("Accept"), func(accept string) bool {
		return strings.Contains(accept, "as=PartialObjectMetadata")
	})
}

func refuse(w http.ResponseWriter, err error) { answer(w, nil, err) }

// answer writes an object, or why there is none.
func answer(w http.ResponseWriter, o *object, err error) {
	code, value := http.StatusOK, any(o)
	if err != nil {
		status := apierrors.APIStatus(nil)
		if !errors.As(err, &status) {
			status = apierrors.NewInternalError(err)
		}
		failure := status.Status()
		failure.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
		code, value = int(failure.Code), failure
	}
	data, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(data) // the client is gone
}
