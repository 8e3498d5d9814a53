// Command serve serves the page of lockstep-controller for a made-up cluster, to every client that has the token
// "viewer". It prints where, and adds a gang for each name that it reads; it ends with its input.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/lockstep-sh/lockstep/test/webpage/fleet"
)

func main() {
	nodes := flag.Int("nodes", 1000, "Number of nodes.")
	gangs := flag.Int("gangs", 500, "Number of gangs.")
	address := flag.String("address", "127.0.0.1:0", "Where to serve.")
	flag.Parse()
	if err := run(*nodes, *gangs, *address); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(nodes, gangs int, address string) error {
	f := fleet.New(nodes, gangs, time.Now())
	handler, err := f.Page(context.Background())
	if err != nil {
		return fmt.Errorf("making the page: %w", err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	fmt.Printf("http://%s\n", listener.Addr())
	for names := bufio.NewScanner(os.Stdin); names.Scan(); {
		f.Arrive(names.Text())
	}
	if err := server.Close(); err != nil {
		return fmt.Errorf("closing the server: %w", err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}
