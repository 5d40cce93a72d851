//! Pure: the state of the full-screen view, and what each key does.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::cluster::objects::{LockObject, QuorumObject};
use crate::show::explain::{Explanation, QuorumState, chain};
use crate::show::picture::{KeyState, Picture};
use redlock_api::MilliTime;

/// `(namespace, name)` of an object.
pub(super) type Name = (String, String);

/// The state of the view.
#[derive(Default)]
pub(super) struct View {
    /// The locks of the watch.
    pub(super) locks: BTreeMap<Name, LockObject>,
    /// The quorums of the watch.
    pub(super) quorums: BTreeMap<Name, QuorumObject>,
    /// Whether the first list of locks is complete.
    pub(super) is_loaded: bool,
    /// The namespaces, for the title.
    pub(super) place: String,
    /// Whether the terminal shows colours.
    pub(super) colours: bool,
    /// The list has only keys and holders that contain this text.
    pub(super) filter: String,
    /// `<namespace>/<key>` of the selected key.
    pub(super) selected: Option<String>,
    /// The meaning of the next key.
    pub(super) mode: Mode,
    /// The result of the last step-down, or the reason why none was requested.
    pub(super) notice: Option<String>,
    /// The reason why the locks are not current.
    pub(super) lock_outage: Option<String>,
    /// The reason why the quorums are not current.
    pub(super) quorum_outage: Option<String>,
}

/// The meaning of the next key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    /// Keys are commands.
    #[default]
    Browse,
    /// Keys are letters of the filter.
    Filter,
    /// The explanation of the selected key is open. Its first visible line has this number.
    Explain(u16),
    /// The next key confirms the step-down of this object.
    Confirm(Name),
}

/// The action of the caller after a pressed key.
#[derive(Debug)]
pub(super) enum Action {
    /// Draw the view.
    Draw,
    /// Close the view.
    Quit,
    /// Ask the holder to step down.
    StepDown(Box<LockObject>),
}

impl View {
    /// An empty view.
    pub(super) fn new(place: String, colours: bool) -> Self {
        Self { place, colours, ..Self::default() }
    }

    /// The locks that pass the filter, and all quorums.
    pub(super) fn picture(&self, now: MilliTime) -> Picture<'_> {
        let passes = |lock: &&LockObject| {
            self.filter.is_empty() || lock.lock().contains(&self.filter) || lock.who().contains(&self.filter)
        };
        Picture::of(self.locks.values().filter(passes), self.quorums.values(), now)
    }

    /// The selected key, else the first one.
    pub(super) fn selection<'a, 'b>(&self, picture: &'b Picture<'a>) -> Option<&'b KeyState<'a>> {
        let named = picture.keys.iter().find(|key| Some(&key.lock) == self.selected.as_ref());
        named.or(picture.keys.first())
    }

    /// Explains the selected lock.
    pub(super) fn explanation(&self, now: MilliTime) -> Option<Explanation> {
        let picture = self.picture(now);
        let key = self.selection(&picture)?;
        let objects: Vec<LockObject> = key.objects().cloned().collect();
        let (quorum, unread) = match key.first()?.quorum() {
            Some(name) => (self.quorums.get(&name), QuorumState::Hidden(format!("{}/{}", name.0, name.1))),
            None => (self.quorums.values().find(|quorum| quorum.is_default()), QuorumState::Unknown),
        };
        let quorum = quorum.map_or(unread, |quorum| QuorumState::Found(Box::new(quorum.clone())));
        Some(chain::explain(&key.lock, &objects, &[], &quorum, now))
    }

    /// Handles one pressed key.
    pub(super) fn on_key(&mut self, key: KeyEvent, now: MilliTime) -> Action {
        let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL) && matches!(key.code, KeyCode::Char('c'));
        if is_interrupt {
            return Action::Quit;
        }
        match self.mode.clone() {
            Mode::Browse => return self.on_browse(key.code, now),
            Mode::Filter => self.on_filter(key.code),
            Mode::Explain(line) => self.mode = on_explain(key.code, line),
            Mode::Confirm(name) => {
                self.mode = Mode::Browse;
                let lock =
                    self.locks.get(&name).filter(|lock| lock.is_held() && matches!(key.code, KeyCode::Char('y')));
                if let Some(lock) = lock {
                    return Action::StepDown(Box::new(lock.clone()));
                }
                self.notice = Some("The holder was not asked to step down.".into());
            }
        }
        Action::Draw
    }

    fn on_browse(&mut self, code: KeyCode, now: MilliTime) -> Action {
        self.notice = None;
        match code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Down | KeyCode::Char('j') => self.select(1, now),
            KeyCode::Up | KeyCode::Char('k') => self.select(-1, now),
            KeyCode::Enter | KeyCode::Char('e') if !self.locks.is_empty() => self.mode = Mode::Explain(0),
            KeyCode::Char('s') => self.confirm_step_down(now),
            _ => {}
        }
        Action::Draw
    }

    fn on_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.mode = Mode::Browse,
            KeyCode::Esc => (self.filter, self.mode) = (String::new(), Mode::Browse),
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) => self.filter.push(letter),
            _ => {}
        }
    }

    /// Moves the selection. It stays with its key when the order changes.
    fn select(&mut self, by: isize, now: MilliTime) {
        let picture = self.picture(now);
        let current = self.selection(&picture).map(|key| &key.lock);
        let index = picture.keys.iter().position(|key| Some(&key.lock) == current).unwrap_or(0);
        let last = picture.keys.len().saturating_sub(1);
        self.selected = picture.keys.get(index.saturating_add_signed(by).min(last)).map(|key| key.lock.clone());
    }

    /// Shows the confirmation of a step-down.
    ///
    /// If a key has several holders, the user must use the command line.
    fn confirm_step_down(&mut self, now: MilliTime) {
        let picture = self.picture(now);
        let holders = self.selection(&picture).map(|key| key.holders.clone()).unwrap_or_default();
        (self.mode, self.notice) = match holders[..] {
            [only] => (Mode::Confirm((only.namespace().unwrap_or_default(), only.name_any())), None),
            [] => (Mode::Browse, Some("The selected lock has no holder.".to_owned())),
            [one, ..] => {
                let namespace = one.namespace().unwrap_or_default();
                let notice = format!("Name one of the holders: redlock step-down dlock/<name> -n {namespace}");
                (Mode::Browse, Some(notice))
            }
        };
    }
}

const fn on_explain(code: KeyCode, line: u16) -> Mode {
    match code {
        KeyCode::Down | KeyCode::Char('j') => Mode::Explain(line.saturating_add(1)),
        KeyCode::Up | KeyCode::Char('k') => Mode::Explain(line.saturating_sub(1)),
        _ => Mode::Browse,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::cluster::objects::fake::{held, lock, now, quorum, waiting};

    /// `shop/reindex` with a holder and a waiter, `shop/quiet`, and a quorum with one fenced member.
    pub(in super::super) fn view() -> View {
        let mut view = View::new("namespace shop".into(), false);
        let quiet = lock("quiet", "{spec: {claim: {identity: q}}}");
        for lock in [held("a"), waiting("b", "Queued", "a has the key", Some(1)), quiet] {
            view.locks.insert((lock.namespace().unwrap(), lock.name_any()), lock);
        }
        let quorum = quorum(["Admitted", "Admitted", "Fenced"]);
        view.quorums.insert(("redlock-system".into(), "main".into()), quorum);
        view.is_loaded = true;
        view
    }

    pub(in super::super) fn press(view: &mut View, code: KeyCode) -> Action {
        view.on_key(KeyEvent::new(code, KeyModifiers::NONE), now())
    }

    fn selected(view: &View) -> String {
        let picture = view.picture(now());
        view.selection(&picture).map(|key| key.lock.clone()).unwrap_or_default()
    }

    #[test]
    fn the_selection_moves_and_stays_within_the_list() {
        let mut view = view();
        assert_eq!(selected(&view), "shop/reindex");
        for (code, expected) in [
            (KeyCode::Down, "shop/quiet"),
            (KeyCode::Down, "shop/quiet"),
            (KeyCode::Char('k'), "shop/reindex"),
            (KeyCode::Up, "shop/reindex"),
        ] {
            press(&mut view, code);
            assert_eq!(selected(&view), expected, "{code:?}");
        }
    }

    #[test]
    fn a_filter_keeps_the_keys_and_holders_that_contain_it() {
        let mut view = view();
        press(&mut view, KeyCode::Char('/'));
        for letter in "quiq".chars() {
            press(&mut view, KeyCode::Char(letter));
        }
        press(&mut view, KeyCode::Backspace);
        press(&mut view, KeyCode::Enter);
        assert_eq!((view.filter.as_str(), &view.mode, selected(&view).as_str()), ("qui", &Mode::Browse, "shop/quiet"));
        press(&mut view, KeyCode::Esc);
        assert_eq!(view.picture(now()).keys.len(), 2);
    }

    #[test]
    fn a_step_down_needs_its_confirmation() {
        let mut view = view();
        press(&mut view, KeyCode::Char('s'));
        assert!(matches!(&view.mode, Mode::Confirm((_, name)) if name == "a"));
        assert!(matches!(press(&mut view, KeyCode::Char('n')), Action::Draw));
        assert!(view.notice.as_ref().is_some_and(|notice| notice.contains("not asked")));
        press(&mut view, KeyCode::Char('s'));
        assert!(matches!(press(&mut view, KeyCode::Char('y')), Action::StepDown(lock) if lock.name_any() == "a"));
        assert_eq!(view.mode, Mode::Browse);
        press(&mut view, KeyCode::Down);
        press(&mut view, KeyCode::Char('s'));
        assert_eq!((&view.mode, view.notice.as_deref()), (&Mode::Browse, Some("The selected lock has no holder.")));
    }

    #[test]
    fn a_holder_among_several_is_named_with_its_namespace() {
        let mut view = view();
        view.locks.insert(("shop".into(), "c".into()), held("c"));
        press(&mut view, KeyCode::Char('s'));
        let notice = "Name one of the holders: redlock step-down dlock/<name> -n shop";
        assert_eq!((&view.mode, view.notice.as_deref()), (&Mode::Browse, Some(notice)));
    }

    #[test]
    fn no_step_down_is_requested_for_an_ended_hold() {
        let mut view = view();
        press(&mut view, KeyCode::Char('s'));
        view.locks.clear();
        assert!(matches!(press(&mut view, KeyCode::Char('y')), Action::Draw));
    }

    #[test]
    fn an_explanation_opens_and_closes_and_control_c_leaves() {
        let mut view = view();
        press(&mut view, KeyCode::Char('e'));
        press(&mut view, KeyCode::Down);
        assert_eq!(view.mode, Mode::Explain(1));
        let explained = view.explanation(now()).unwrap();
        assert!(explained.summary.starts_with("shop/reindex is held by \"a\""), "{}", explained.summary);
        press(&mut view, KeyCode::Esc);
        assert_eq!(view.mode, Mode::Browse);
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert!(matches!(view.on_key(interrupt, now()), Action::Quit));
        assert!(matches!(press(&mut view, KeyCode::Char('q')), Action::Quit));
    }
}
