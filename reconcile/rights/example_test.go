package rights_test

import (
	"context"
	"fmt"
	"log"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest"
	"github.com/thermostat-go/thermostat/reconcile/rights"
)

// A user who may read Secrets asks whether it may do more.
func ExampleCheck() {
	server, err := reconciletest.Start(reconciletest.Options{Roles: []string{"testdata/reader.yaml"}})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	cfg := server.LinkAs(reconciletest.ServiceAccount("default", "reader")).Config()
	err = rights.Check(context.Background(), cfg, rights.Needs{
		"default": {rights.Rule("", "secrets", "get", "update"), rights.Rule("apps", "deployments", "list")},
	})
	fmt.Println(err)
	// Output:
	// the API server does not grant this user what the program needs
	// to be added to a Role in namespace default:
	// - {apiGroups: [""], resources: ["secrets"], verbs: ["update"]}
	// - {apiGroups: ["apps"], resources: ["deployments"], verbs: ["list"]}
}
