package config

import "reflect"

// Reloadable compares the configuration of a running node with a new one and
// returns the settings that differ and need a restart, such as
// "memory.arena", in the order of the file; a section whose entries the user
// names is one setting. It returns nil when the node can take the new one over
// as it runs. A node that is told to reload applies the rest all the same, and
// says which settings it did not.
//
// Applied while running are the peers, delegates, roots, socket users, tokens,
// certificates and their CA, and the bandwidth limit: who may do what changes
// more often than what the node is made of.
func Reloadable(running, next *Config) (needRestart []string) {
	return differing("", reflect.ValueOf(*running), reflect.ValueOf(*next))
}

func differing(at string, a, b reflect.Value) (out []string) {
	for i := range a.NumField() {
		f := a.Type().Field(i)
		name := join(at, f.Tag.Get("yaml"))
		switch {
		case f.Tag.Get("reload") == "yes":
		case f.Type.Kind() == reflect.Struct:
			out = append(out, differing(name, a.Field(i), b.Field(i))...)
		case f.Type.Kind() == reflect.Slice && a.Field(i).Len()+b.Field(i).Len() == 0:
			// [] and nothing are the same to a node.
		case !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()):
			out = append(out, name)
		}
	}
	return out
}
