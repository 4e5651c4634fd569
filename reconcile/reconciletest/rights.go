package reconciletest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// usage is the rights that were made use of.
type usage map[use]bool

func compareUses(a, b use) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.group, b.group),
		cmp.Compare(a.resource, b.resource), cmp.Compare(a.verb, b.verb))
}

// String is the right in the words of a role: "create events in the namespace default".
func (u use) String() string {
	text := u.verb + " " + u.resource
	if u.group != "" {
		text += "." + u.group
	}
	if u.namespace != "" {
		text += " in the namespace " + u.namespace
	}
	return text
}

// judged reports whether this server asks for such a right. A real one asks for more: for escalate when a role is
// written, for impersonate, and for an update of finalizers where OwnerReferencesPermissionEnforcement is on.
func (u use) judged() bool {
	verbs := []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "bind", "*"}
	return slices.Contains(verbs, u.verb) && !strings.HasSuffix(u.resource, "/finalizers")
}

// everywhere reports whether a ClusterRoleBinding is what allows a user to make use of a right, if only for objects of
// certain names.
func (a *access) everywhere(user string, u use) bool {
	return slices.ContainsFunc(a.granted(user), func(granted use) bool {
		return granted.namespace == "" && usage{u: true}.covers(granted)
	})
}

// granted returns the rights that the roles grant to a user, one for each verb of each resource of each rule.
func (a *access) granted(user string) []use {
	all := usage{}
	for _, b := range a.bindings {
		if user == "" || b.user != user && !slices.Contains(groupsOf(user), b.group) {
			continue
		}
		for _, rule := range a.roles[b.role] {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						all[use{b.namespace, group, resource, verb}] = true
					}
				}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(all), compareUses)
}

// covers reports whether one of the rights that were made use of needs what was granted.
func (u usage) covers(granted use) bool {
	is := func(pattern, value string) bool { return pattern == "*" || pattern == value }
	for used := range u {
		if is(granted.verb, used.verb) && is(granted.group, used.group) && is(granted.resource, used.resource) &&
			(granted.namespace == "" || granted.namespace == used.namespace) {
			return true
		}
	}
	return false
}

// manifest returns the smallest roles with these rights: a ClusterRole for what is asked of all namespaces, or granted
// in all of them, and a Role for each other namespace.
func (u usage) manifest(everywhere func(use) bool) string {
	verbs := map[use][]string{}
	for _, used := range slices.SortedFunc(maps.Keys(u), compareUses) {
		if everywhere(used) {
			used.namespace = ""
		}
		of := used
		of.verb = ""
		if !slices.Contains(verbs[of], used.verb) {
			verbs[of] = append(verbs[of], used.verb)
		}
	}
	var b strings.Builder
	namespace := "none"
	for _, of := range slices.SortedFunc(maps.Keys(verbs), compareUses) {
		if of.namespace != namespace {
			if namespace != "none" {
				b.WriteString("---\n")
			}
			namespace = of.namespace
			head := "kind: ClusterRole\nmetadata: {name: minimal}"
			if namespace != "" {
				head = fmt.Sprintf("kind: Role\nmetadata: {name: minimal, namespace: %s}", namespace)
			}
			fmt.Fprintf(&b, "apiVersion: rbac.authorization.k8s.io/v1\n%s\nrules:\n", head)
		}
		slices.Sort(verbs[of])
		fmt.Fprintf(&b, "- {apiGroups: [%s], resources: [%s], verbs: [%s]}\n", cmp.Or(of.group, `""`), of.resource,
			strings.Join(verbs[of], ", "))
	}
	return b.String()
}

// rightsReport names the rights that no run has made use of, and those that only a real server asks for, and has the
// smallest roles with the others.
func rightsReport(c *check) string {
	text := ""
	for _, program := range c.scenario.programs() {
		text += rightsOf(program, c.scenario.Server.Roles, c.covered.used[program.Name])
	}
	return text
}

// rightsOf is the rightsReport about one program, with the roles that there are and the rights that it has made use of.
func rightsOf(program Program, roles []string, used usage) string {
	everywhere := func(use) bool { return true }
	text := ""
	if user := program.User; user != "" {
		access, err := readAccess(roles)
		if err != nil {
			return "" // the server has said so
		}
		everywhere = func(u use) bool { return access.everywhere(user, u) }
		var unused, unjudged []string
		for _, granted := range access.granted(user) {
			switch {
			case !granted.judged():
				unjudged = append(unjudged, granted.String())
			case !used.covers(granted):
				unused = append(unused, granted.String())
			}
		}
		if len(unused) > 0 {
			text = "\n  " + of(program.Name, "granted, and used in no run: ") + strings.Join(unused, ", ")
		}
		if len(unjudged) > 0 {
			text += "\n  " + of(program.Name, "granted, and not judged, as only a real server asks for it: ") +
				strings.Join(unjudged, ", ")
		}
	}
	return text + "\n  " + of(program.Name, "the smallest roles for what the program did (names of objects are left "+
		"out):\n    ") +
		strings.ReplaceAll(strings.TrimSpace(used.manifest(everywhere)), "\n", "\n    ")
}
