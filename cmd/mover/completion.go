package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// completeCommand is what the shells' scripts call, with the words typed so far.
const completeCommand = "__complete"

// completionScripts ask mover itself, so that they fit whichever version is
// installed. Where it has nothing to say, the shell completes file names.
var completionScripts = map[string]string{
	"bash": `_mover() {
	local IFS=$'\n'
	COMPREPLY=($(mover ` + completeCommand + ` "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _mover mover
`,
	"zsh": `#compdef mover
_mover() {
	local -a found
	found=("${(@f)$(mover ` + completeCommand + ` "${(@)words[2,CURRENT]}" 2>/dev/null)}")
	if [[ -n "$found" ]]; then
		compadd -a found
	else
		_files
	fi
}
compdef _mover mover
`,
	"fish": `function __mover_complete
	set -l words (commandline -opc) (commandline -ct)
	mover ` + completeCommand + ` $words[2..-1] 2>/dev/null
end
complete -c mover -n 'count (__mover_complete)' -f -a '(__mover_complete)'
`,
}

func completionCommand() *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a script that lets a shell complete mover's commands and options",
		ArgsUsage: "bash|zsh|fish",
		Description: "   bash: mover completion bash > /etc/bash_completion.d/mover\n" +
			"   zsh:  mover completion zsh > \"${fpath[1]}/_mover\"\n" +
			"   fish: mover completion fish > ~/.config/fish/completions/mover.fish",
		Action: func(c *cli.Context) error {
			if err := wantArgs(c, "bash, zsh or fish"); err != nil {
				return err
			}
			script, known := completionScripts[c.Args().First()]
			if !known {
				return usagef("%q: there is no completion for it; allowed: bash, zsh, fish", c.Args().First())
			}
			_, err := fmt.Fprint(c.App.Writer, script)
			return err
		},
	}
}

// candidates are what the last of the words may become: the commands at that
// place, or the options if it begins with a dash. None leaves it to the shell:
// a file, or what only the user knows.
func candidates(app *cli.App, typed []string) (out []string) {
	if len(typed) == 0 {
		typed = []string{""}
	}
	typed, last := typed[:len(typed)-1], typed[len(typed)-1]
	commands, flags := app.Commands, app.Flags
	for i := 0; i < len(typed); i++ {
		if strings.HasPrefix(typed[i], "-") {
			if takesValue(flags, typed[i]) {
				i++
			}
			continue
		}
		command := find(commands, typed[i])
		if command == nil {
			break // an argument
		}
		commands, flags = command.Subcommands, command.Flags
	}
	if len(typed) > 0 && takesValue(flags, typed[len(typed)-1]) {
		return nil
	}
	offer := func(name string) {
		if strings.HasPrefix(name, last) {
			out = append(out, name)
		}
	}
	if strings.HasPrefix(last, "-") {
		for _, f := range flags {
			if v, is := f.(cli.VisibleFlag); !is || v.IsVisible() {
				offer("--" + f.Names()[0])
			}
		}
		offer("--help")
		return out
	}
	for _, c := range commands {
		if !c.Hidden {
			offer(c.Name)
		}
	}
	return out
}
